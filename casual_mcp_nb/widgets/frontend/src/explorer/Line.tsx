import type { HTMLAttributes } from "preact";

type Props = HTMLAttributes<HTMLDivElement> & { [data: `data-${string}`]: unknown };

/** A row of the list. Its list gives it its place and takes its keys. */
export function Line({ children, ...rest }: Props) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the list makes one row focusable at a time
    // biome-ignore lint/a11y/useSemanticElements: the rows of a virtual list are not those of a table
    <div role="row" {...rest}>
      {children}
    </div>
  );
}

export function Cell({ children, ...rest }: Props) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the keyboard goes to rows, and to the controls in cells
    // biome-ignore lint/a11y/useSemanticElements: the rows of a virtual list are not those of a table
    <div role="gridcell" {...rest}>
      {children}
    </div>
  );
}
