import "./tokens.css";
import { useLayoutEffect, useRef } from "preact/hooks";
import { number } from "../lib/words";
import { PartsBar } from "./PartsBar";
import type { StepTokens, TokensState } from "./state";
import { amount, byTurn, partsInWords, turnInWords } from "./tokens";

/** Tokens of each step as bars with their numbers, turn by turn. */
export function TokensChart({ tokens }: { tokens: TokensState }) {
  const turns = byTurn(tokens);
  const most = Math.max(1, ...turns.flatMap(({ steps }) => steps.map((step) => step.sent)));
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current as HTMLDivElement;
    follows.current = scrollHeight - scrollTop - clientHeight < 20;
  };
  useLayoutEffect(() => {
    if (box.current && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [tokens]);
  if (!turns.length)
    return (
      <p class="cmn-quiet" data-testid="tokens">
        Nothing sent yet.
      </p>
    );
  return (
    <div class="cmn-tokens" data-testid="tokens">
      <div class="cmn-legend" data-testid="tokens-legend">
        {tokens.parts.map((name, index) => (
          <span key={name}>
            <i class={`cmn-swatch cmn-part-${index}`} />
            {name}
          </span>
        ))}
      </div>
      {tokens.earlier > 0 && <p class="cmn-quiet">{number.format(tokens.earlier)} earlier steps are not shown.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard */}
      <section class="cmn-meter-box" tabIndex={0} aria-label="Tokens by step" ref={box} onScroll={onScroll}>
        <table class="cmn-table cmn-meter" data-testid="tokens-table">
          <caption class="cmn-visually-hidden">Tokens of each request and answer</caption>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Tokens by part</th>
              <th scope="col" class="cmn-number">
                In
              </th>
              <th scope="col" class="cmn-number">
                Reused
              </th>
              <th scope="col" class="cmn-number">
                Out
              </th>
            </tr>
          </thead>
          {turns.map((group) => (
            <tbody key={group.turn} data-testid={`tokens-turn-${group.turn}`}>
              <tr class="cmn-meter-turn">
                <th scope="rowgroup" colSpan={5}>
                  {turnInWords(group)}
                </th>
              </tr>
              {group.steps.map((step) => (
                <StepRow key={step.step} step={step} names={tokens.parts} most={most} />
              ))}
            </tbody>
          ))}
        </table>
      </section>
    </div>
  );
}

function StepRow({ step, names, most }: { step: StepTokens; names: string[]; most: number }) {
  return (
    <tr data-testid={`tokens-${step.turn}-${step.step}`}>
      <th scope="row">{step.step}</th>
      <td class="cmn-stack-cell">
        <PartsBar values={step.parts} names={names} most={most} />
        <span class="cmn-visually-hidden">{partsInWords(step.parts, names)}</span>
      </td>
      <td class="cmn-number">{amount(step.sent, step.origin)}</td>
      <td class="cmn-number">{step.reused === undefined ? "" : amount(step.reused, "estimated")}</td>
      <td class="cmn-number">{step.answer === undefined ? "" : amount(step.answer, step.answer_origin)}</td>
    </tr>
  );
}
