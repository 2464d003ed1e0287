import { LargeText } from "../lib/controls";
import { useWidgetState } from "../lib/widget";
import type { TokensState } from "./state";
import { TokensChart } from "./TokensChart";
import { tokensIn, tokensOut } from "./tokens";

/** All tokens of a conversation, and those of each step. */
export function TokenMeter() {
  const { tokens } = useWidgetState<{ tokens: TokensState }>();
  return (
    <>
      <div class="cmn-row">
        <strong>Tokens</strong>
        <span class="cmn-grow" data-testid="tokens-all">
          {tokensIn(tokens.all)}
          {tokens.all.steps > 0 && <span class="cmn-quiet">, {tokensOut(tokens.all)}</span>}
        </span>
        <LargeText />
      </div>
      <TokensChart tokens={tokens} />
    </>
  );
}
