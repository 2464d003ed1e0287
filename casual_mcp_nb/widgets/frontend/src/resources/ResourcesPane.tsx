import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button, Checkbox, CopyButton } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useUniqueId } from "../lib/id";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, number } from "../lib/words";
import "./resources.css";
import type { Offer, OfferList, WithResources } from "./state";

const WAIT_BEFORE_COMPLETING = 200;

/** What servers offer to read and to fill in: a list, and the one that was chosen. Servers are asked once it is shown. */
export function ResourcesPane({ shown = true }: { shown?: boolean }) {
  const bridge = useBridge<WithResources>();
  const { resources } = useWidgetState<WithResources>();
  const [query, setQuery] = useState("");
  const [list, setList] = useState<OfferList | null>(null);
  const [chosen, setChosen] = useState<Offer | null>(null);
  const opener = useRef<string | null>(null);
  const pane = useRef<HTMLDivElement>(null);
  const { version } = resources;
  useEffect(() => {
    if (!shown) return;
    let current = true;
    bridge.request<OfferList>("resources.offers", { query }).then(
      (answer) => current && setList(answer),
      () => {},
    );
    return () => {
      current = false;
    };
  }, [bridge, query, version, shown]);
  const back = () => {
    setChosen(null);
    setTimeout(() => pane.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(opener.current ?? "")}"]`)?.focus());
  };
  const open = (offer: Offer) => {
    opener.current = keyOf(offer);
    setChosen(offer);
  };
  return (
    <div class="cmn-resources" ref={pane} data-testid="resources">
      {chosen ? (
        <OfferCard key={keyOf(chosen)} offer={chosen} onBack={back} />
      ) : (
        <>
          <input
            type="search"
            class="cmn-wide"
            placeholder="Filter resources, prompts and skills"
            aria-label="Filter resources, prompts and skills"
            autocomplete="off"
            data-testid="resources-filter"
            value={query}
            onInput={(event) => setQuery(event.currentTarget.value)}
          />
          <p class="cmn-quiet" role="status" data-testid="resources-found">
            {list && summary(list, resources)}
          </p>
          {list?.problems.map((problem) => (
            <p key={problem} class="cmn-bad">
              {problem}
            </p>
          ))}
          {list?.rows.some(isSkill) && <Group title="Skills" rows={list.rows.filter(isSkill)} onOpen={open} />}
          {list &&
            byServer(list.rows.filter((row) => !isSkill(row))).map(([server, rows]) => (
              <Group key={server} title={server} rows={rows} onOpen={open} />
            ))}
        </>
      )}
    </div>
  );
}

function summary(list: OfferList, { resources, prompts, skills }: WithResources["resources"]): string {
  const total = resources + prompts + skills;
  if (!total) return "The connected servers offer no resources, prompts or skills.";
  const others = `${counted(resources, "resource")} and ${counted(prompts, "prompt")}`;
  const all = skills ? `${counted(skills, "skill")}, ${others}` : others;
  if (list.total === total && list.rows.length === list.total) return all;
  return list.rows.length < list.total
    ? `The first ${number.format(list.rows.length)} of ${number.format(list.total)} that match`
    : `${number.format(list.total)} of ${all} match`;
}

function keyOf({ kind, server, name }: Offer): string {
  return `${kind} ${server} ${name}`;
}

function byServer(rows: readonly Offer[]): [string, Offer[]][] {
  const groups = new Map<string, Offer[]>();
  for (const row of rows) groups.set(row.server, [...(groups.get(row.server) ?? []), row]);
  return [...groups];
}

function isSkill(offer: Offer): boolean {
  return offer.kind === "skill";
}

function Group({ title, rows, onOpen }: { title: string; rows: readonly Offer[]; onOpen(offer: Offer): void }) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul class="cmn-offers">
        {rows.map((offer) => (
          <li key={keyOf(offer)}>
            <button type="button" class="cmn-link" data-testid="offer" data-key={keyOf(offer)} onClick={() => onOpen(offer)}>
              <span class="cmn-quiet">{kindOf(offer)}</span>
              <code class="cmn-clip">{isSkill(offer) ? `${offer.server}:${offer.name}` : offer.name}</code>
              <span class="cmn-quiet cmn-clip">
                {isSkill(offer) && offer.about ? `${offer.about} · ${offer.summary}` : offer.summary || offer.title}
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function kindOf(offer: Offer): string {
  return offer.template ? "template" : offer.kind;
}

/** One resource, template or prompt: its form, what it contains, and how it goes to the model. */
function OfferCard({ offer, onBack }: { offer: Offer; onBack(): void }) {
  const bridge = useBridge<WithResources>();
  const { resources } = useWidgetState<WithResources>();
  const [values, setValues] = useState<Record<string, string>>({});
  const [html, setHtml] = useState("");
  const [busy, setBusy] = useState(false);
  const heading = useRef<HTMLHeadingElement>(null);
  const form = useRef<HTMLFormElement>(null);
  useLayoutEffect(() => heading.current?.focus(), []);
  const { kind, server, name } = offer;
  const request = { kind, server, name, values };
  const followed = resources.followed?.[`${server} ${name}`];

  const isComplete = () => {
    const missing = offer.fields.find((field) => field.required && !values[field.name]);
    if (!missing) return true;
    bridge.error.value = `${missing.name} is required.`;
    form.current?.querySelector<HTMLElement>(`[data-field="${CSS.escape(missing.name)}"]`)?.focus();
    return false;
  };
  const read = async () => {
    if (busy || !isComplete()) return;
    setBusy(true);
    const answer = await bridge.call<string>("resources.read", request);
    setBusy(false);
    if (answer === undefined) return;
    setHtml(answer);
    bridge.say(`${offer.title}: read`);
  };
  const attach = async () => {
    if (busy || !isComplete()) return;
    setBusy(true);
    const answer = await bridge.call("resources.attach", request);
    setBusy(false);
    if (answer !== undefined) bridge.say(`${offer.title} goes with the next message of the chat panel.`);
  };
  return (
    <section class="cmn-card" aria-label={offer.title}>
      <Button testid="offers-back" tone="quiet" onClick={onBack}>
        ‹ All resources, prompts and skills
      </Button>
      <h3 ref={heading} tabIndex={-1} data-testid="offer-title">
        <strong>{offer.title}</strong>
        <span class="cmn-quiet">{[`${kindOf(offer)} of ${server}`, offer.about].filter(Boolean).join(" · ")}</span>
      </h3>
      {kind === "resource" && (
        <p>
          <code>{name}</code>
        </p>
      )}
      {offer.description && <p class="cmn-description">{offer.description}</p>}
      <form
        ref={form}
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void read();
        }}
      >
        {offer.fields.map((field) => (
          <ArgumentField
            key={field.name}
            offer={offer}
            field={field}
            values={values}
            onWrite={(text) => setValues((before) => ({ ...before, [field.name]: text }))}
          />
        ))}
        <div class="cmn-row cmn-offer-actions">
          <Button testid="offer-read" tone="primary" type="submit" aria-disabled={busy}>
            {kind === "prompt" ? "Preview" : "Read"}
          </Button>
          <Button testid="offer-attach" aria-disabled={busy} onClick={attach}>
            Add to the next message
          </Button>
          <CopyButton testid="offer-code" text={() => bridge.call<string>("resources.code_of", request)}>
            Copy as Python
          </CopyButton>
          {kind === "resource" && !offer.template && (
            <Checkbox
              text="Follow changes"
              testid="offer-follow"
              title="Ask the server to report changes"
              checked={followed !== undefined}
              onChoose={(on) => bridge.call("resources.set_followed", { server, uri: name, on })}
            />
          )}
        </div>
      </form>
      <p class="cmn-quiet" role="status" data-testid="offer-state">
        {[
          followed && (followed.problem ?? `Changed ${number.format(followed.updates)} times since you started following it`),
          resources.attached > 0 && `${counted(resources.attached, "attachment")} for the next message of the chat panel`,
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      {html && (
        // biome-ignore lint/a11y/useSemanticElements: its name says what it is
        <div class="cmn-outcome" role="region" aria-label="Contents" data-testid="offer-contents">
          <Drawn html={html} />
        </div>
      )}
    </section>
  );
}

interface FieldProps {
  offer: Offer;
  field: Offer["fields"][number];
  values: Record<string, string>;
  onWrite(text: string): void;
}

/** A text for an argument, with what the server suggests for it. */
function ArgumentField({ offer, field, values, onWrite }: FieldProps) {
  const bridge = useBridge<WithResources>();
  const [suggestions, setSuggestions] = useState<readonly string[]>([]);
  const [hasFocus, setHasFocus] = useState(false);
  const id = useUniqueId();
  const { kind, server, name } = offer;
  const written = JSON.stringify(values);
  useEffect(() => {
    if (!hasFocus) return;
    let current = true;
    const timer = setTimeout(() => {
      const request = { kind, server, name, argument: field.name, values: JSON.parse(written) };
      bridge.request<string[]>("resources.complete", request).then(
        (answer) => current && setSuggestions(answer),
        () => {},
      );
    }, WAIT_BEFORE_COMPLETING);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [bridge, kind, server, name, field.name, hasFocus, written]);
  return (
    <label class="cmn-field cmn-argument">
      <span>
        <code>{field.name}</code>
        {field.required && <span class="cmn-required"> required</span>}
        {field.description && <span class="cmn-quiet"> {field.description}</span>}
      </span>
      <input
        type="text"
        class="cmn-wide"
        autocomplete="off"
        list={id}
        aria-label={field.name}
        aria-required={field.required}
        data-field={field.name}
        data-testid={`argument-${field.name}`}
        value={values[field.name] ?? ""}
        onFocus={() => setHasFocus(true)}
        onBlur={() => setHasFocus(false)}
        onInput={(event) => onWrite(event.currentTarget.value)}
      />
      <datalist id={id} data-testid={`suggestions-${field.name}`}>
        {suggestions.map((suggestion) => (
          <option key={suggestion} value={suggestion} />
        ))}
      </datalist>
    </label>
  );
}
