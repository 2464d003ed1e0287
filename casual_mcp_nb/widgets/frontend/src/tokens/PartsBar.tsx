import { number } from "../lib/words";

interface Props {
  values: readonly number[];
  names: readonly string[];
  /** How many tokens take the full width. */
  most: number;
  /** Which colours: those of the parts of a request, or of what is reused and what is new. */
  look?: "part" | "reuse";
}

/** The tokens of requests by part, as one bar. The numbers are beside it, so a screen reader skips it. */
export function PartsBar({ values, names, most, look = "part" }: Props) {
  return (
    <span class="cmn-stack" aria-hidden="true">
      {values.map(
        (value, index) =>
          value > 0 && (
            <i
              key={names[index]}
              class={`cmn-${look}-${index}`}
              style={{ width: `${((100 * value) / Math.max(1, most)).toFixed(2)}%` }}
              title={`${names[index]}: ${number.format(value)}`}
            />
          ),
      )}
    </span>
  );
}
