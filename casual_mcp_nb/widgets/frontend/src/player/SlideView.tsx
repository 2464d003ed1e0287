import { Verbatim } from "../lib/controls";
import { counted, number, tokens } from "../lib/words";
import { PartsBar } from "../tokens/PartsBar";
import { partsInWords } from "../tokens/tokens";
import { FoundTools } from "./FoundTools";
import { Prose } from "./Prose";
import { compared, placeOf, requestBefore, totalOf } from "./slides";
import type {
  AnswerSlide,
  Call,
  CallSlide,
  CellSlide,
  Lesson,
  Mark,
  Message,
  PromptSlide,
  RequestSlide,
  SearchSlide,
  Tool,
} from "./state";

interface Props {
  lesson: Lesson;
  place: number;
}

/** One slide in large type. */
export function SlideView({ lesson, place }: Props) {
  const slide = lesson.slides[place];
  if (!slide) return null;
  return (
    <article class="cmn-slide" data-kind={slide.kind} data-testid="slide">
      <p class="cmn-quiet cmn-place">{placeOf(slide)}</p>
      {slide.kind === "prompt" && <Prompt slide={slide} />}
      {slide.kind === "request" && <Request slide={slide} lesson={lesson} before={requestBefore(lesson.slides, place)} />}
      {slide.kind === "search" && <Search slide={slide} />}
      {slide.kind === "call" && <CalledTool slide={slide} />}
      {slide.kind === "cell" && <Cell slide={slide} />}
      {slide.kind === "answer" && <Answer slide={slide} figures={lesson.turns[slide.turn - 1]?.figures ?? []} />}
    </article>
  );
}

function Prompt({ slide }: { slide: PromptSlide }) {
  return (
    <>
      <h2>Prompt</h2>
      <div class="cmn-spoken cmn-said">{slide.text || "(no text)"}</div>
      <Pictures of={slide} />
      {slide.before !== undefined && <Folded title="Before the edit" text={slide.before} />}
      {slide.attached?.map((text, index) => (
        <Folded key={index} title="Attached" text={text} />
      ))}
    </>
  );
}

function Request({ slide, lesson, before }: { slide: RequestSlide; lesson: Lesson; before: RequestSlide | undefined }) {
  const messages = compared(slide.messages, before?.messages);
  const tools = compared(slide.tools, before?.tools);
  const total = totalOf(slide);
  const [messageAt, toolAt] = [(at: number) => lesson.messages[at] as Message, (at: number) => lesson.tools[at] as Tool];
  return (
    <>
      <h2>Request</h2>
      <p class="cmn-lead">{tokens(total, slide.origin)} to the model</p>
      <div class="cmn-breakdown">
        <PartsBar values={slide.parts} names={lesson.parts} most={total} />
        <div class="cmn-legend" aria-hidden="true">
          {lesson.parts.map(
            (name, index) =>
              (slide.parts[index] ?? 0) > 0 && (
                <span key={name}>
                  <i class={`cmn-swatch cmn-part-${index}`} />
                  {name} {number.format(slide.parts[index] as number)}
                </span>
              ),
          )}
        </div>
        <span class="cmn-visually-hidden">{partsInWords(slide.parts, lesson.parts)}</span>
        {slide.reused !== undefined && (
          <p class="cmn-quiet">{tokens(slide.reused)} at its beginning are repeated from the previous request.</p>
        )}
      </div>
      {slide.remarks?.map((mark) => (
        <p key={mark[0]}>
          <Marked mark={mark} />
        </p>
      ))}
      <h3>{before ? "New messages" : "Messages"}</h3>
      {messages.added.map((at) => (
        <MessageRow key={at} message={messageAt(at)} open />
      ))}
      {before && !messages.added.length && <p class="cmn-quiet">None.</p>}
      <More count={messages.same.length} noun="message" what="as in the previous request">
        {messages.same.map((at) => (
          <MessageRow key={at} message={messageAt(at)} />
        ))}
      </More>
      {slide.left_out !== undefined && <p class="cmn-quiet">{counted(slide.left_out, "older message")} not sent.</p>}
      {(tools.added.length > 0 || !before) && (
        <>
          <h3>{before ? "New tools" : "Tools"}</h3>
          {tools.added.length ? <ToolTable tools={tools.added.map(toolAt)} /> : <p class="cmn-quiet">None.</p>}
        </>
      )}
      <More count={tools.same.length} noun="tool" what="as in the previous request">
        <ToolTable tools={tools.same.map(toolAt)} />
      </More>
      {tools.removed.length > 0 && (
        <p class="cmn-quiet">No longer offered: {tools.removed.map((at) => toolAt(at).name).join(", ")}</p>
      )}
      {slide.options && (
        <More count={slide.options.length} noun="option" what="of the request">
          <dl class="cmn-options">
            {slide.options.map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  <code>{value}</code>
                </dd>
              </div>
            ))}
          </dl>
        </More>
      )}
    </>
  );
}

function MessageRow({ message, open = false }: { message: Message; open?: boolean }) {
  const about = [message.name, message.text && tokens(message.tokens)].filter(Boolean).join(", ");
  return (
    <details class="cmn-message" open={open && message.text.length < 2000}>
      <summary>
        <strong>{message.role}</strong> <span class="cmn-quiet">{about}</span>
      </summary>
      {message.text && <Verbatim label={`Message of the ${message.role}`} testid="message-text" text={message.text} />}
      {message.images !== undefined && <p class="cmn-quiet">{counted(message.images, "image")}</p>}
      {message.calls?.map(([name, args], index) => (
        <p key={index}>
          Calls <code>{name}</code> <code class="cmn-quiet">{args}</code>
        </p>
      ))}
    </details>
  );
}

function ToolTable({ tools }: { tools: readonly Tool[] }) {
  return (
    <table class="cmn-table" data-testid="tools">
      <thead>
        <tr>
          <th scope="col">Tool</th>
          <th scope="col" class="cmn-number">
            Tokens
          </th>
          <th scope="col">Description</th>
        </tr>
      </thead>
      <tbody>
        {tools.map((tool, index) => (
          <tr key={index}>
            <td>
              {tool.definition ? (
                <details>
                  <summary>
                    <code>{tool.name}</code>
                  </summary>
                  <Verbatim label={`Definition of ${tool.name}`} testid="definition" text={tool.definition} />
                </details>
              ) : (
                <code>{tool.name}</code>
              )}
            </td>
            <td class="cmn-number">≈ {number.format(tool.tokens)}</td>
            <td>{tool.description}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Search({ slide }: { slide: SearchSlide }) {
  return (
    <>
      <Said slide={slide} />
      <h2>{slide.words}</h2>
      <Outcome call={slide} figures={slide.figures} />
      <FoundTools rows={slide.rows} />
      {slide.result && <Folded title="Read by the model" text={slide.result} />}
    </>
  );
}

function CalledTool({ slide }: { slide: CallSlide }) {
  return (
    <>
      <Said slide={slide} />
      <h2>
        <code>{slide.tool}</code>
      </h2>
      <CallBody call={slide} figures={slide.figures} />
    </>
  );
}

function Said({ slide }: { slide: CallSlide | SearchSlide }) {
  if (!slide.said) return null;
  return (
    <div class="cmn-spoken" data-testid="said">
      <Prose nodes={slide.said} />
    </div>
  );
}

function CallBody({ call, figures }: { call: Call; figures?: string[] | undefined }) {
  return (
    <>
      <Outcome call={call} figures={figures} />
      <h3>Arguments</h3>
      <Verbatim label={`Arguments of ${call.tool}`} testid="arguments" text={call.arguments} />
      {call.result !== undefined && (
        <>
          <h3>{call.unedited === undefined ? "Result" : "Result, edited by hand"}</h3>
          <Verbatim label={`Result of ${call.tool}`} testid="result" text={call.result} />
        </>
      )}
      {call.unedited !== undefined && <Folded title="Result before the edit" text={call.unedited} />}
      <Pictures of={call} />
      {call.nested?.map((each, index) => (
        <section key={index} class="cmn-nested">
          <h3>
            ↳ <code>{each.tool}</code>
          </h3>
          <CallBody call={each} />
        </section>
      ))}
    </>
  );
}

/** How a call ended, and what the answer took that contains it. */
function Outcome({ call, figures = [] }: { call: Call; figures?: string[] | undefined }) {
  return (
    <p class="cmn-quiet">
      <Marked mark={call.status} />
      {[call.seconds ?? "", ...figures].filter(Boolean).map((figure) => ` · ${figure}`)}
    </p>
  );
}

function Answer({ slide, figures }: { slide: AnswerSlide; figures: readonly string[] }) {
  return (
    <>
      <h2>Answer</h2>
      {slide.status && (
        <p>
          <Marked mark={slide.status} />
        </p>
      )}
      <div class="cmn-spoken" data-testid="answer">
        <Prose nodes={slide.text} />
      </div>
      <p class="cmn-quiet" data-testid="figures">
        {figures.join(" · ")}
      </p>
      {slide.figures && slide.figures.length > 0 && <p class="cmn-quiet">Last step: {slide.figures.join(" · ")}</p>}
    </>
  );
}

function Cell({ slide }: { slide: CellSlide }) {
  return (
    <>
      <h2>Written cell</h2>
      <div class="cmn-spoken cmn-said">{slide.task}</div>
      <Verbatim label="Program" testid="program" text={slide.code} />
      {slide.calls.length > 0 && (
        <table class="cmn-table" data-testid="cell-calls">
          <thead>
            <tr>
              <th scope="col">Tool</th>
              <th scope="col" class="cmn-number">
                Line
              </th>
              <th scope="col" class="cmn-number">
                Tokens
              </th>
              <th scope="col">Policy</th>
              <th scope="col">In run()</th>
            </tr>
          </thead>
          <tbody>
            {slide.calls.map(([tool, line, size, policy, asks], index) => (
              <tr key={index}>
                <td>
                  <code>{tool}</code>
                </td>
                <td class="cmn-number">{line}</td>
                <td class="cmn-number">{size}</td>
                <td>{policy}</td>
                <td>{asks}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {slide.difference !== undefined && <Folded title="What the correction changed" text={slide.difference} />}
      <p class="cmn-quiet" data-testid="figures">
        <Marked mark={slide.status} />
        {slide.figures.map((figure) => ` · ${figure}`)}
      </p>
    </>
  );
}

function Pictures({ of: { images, notes } }: { of: { images?: [string, string][]; notes?: string[] } }) {
  return (
    <>
      {images?.map(([source, note], index) => (
        <figure key={index}>
          <img src={source} alt={note} />
          <figcaption class="cmn-quiet">{note}</figcaption>
        </figure>
      ))}
      {notes?.map((note) => (
        <p key={note} class="cmn-quiet">
          {note}
        </p>
      ))}
    </>
  );
}

function Folded({ title, text }: { title: string; text: string }) {
  return (
    <details>
      <summary>{title}</summary>
      <Verbatim label={title} testid="folded" text={text} />
    </details>
  );
}

function More({
  count,
  noun,
  what,
  children,
}: {
  count: number;
  noun: string;
  what: string;
  children: preact.ComponentChildren;
}) {
  if (!count) return null;
  return (
    <details class="cmn-more">
      <summary class="cmn-quiet">
        {counted(count, noun)} {what}
      </summary>
      {children}
    </details>
  );
}

function Marked({ mark: [text, tone] }: { mark: Mark }) {
  return (
    <span class="cmn-mark" data-tone={tone}>
      {text}
    </span>
  );
}
