// Buttons, tabs and choices as all widgets have them.

import type { ButtonHTMLAttributes, ComponentChildren, TargetedMouseEvent } from "preact";
import { useRef } from "preact/hooks";
import { useChoice } from "./choice";
import { copyFrom } from "./clipboard";
import { useUniqueId } from "./id";

type Tone = "plain" | "quiet" | "primary" | "danger";

interface ButtonProps extends Omit<ButtonHTMLAttributes, "type"> {
  testid: string;
  tone?: Tone;
  type?: "button" | "submit";
}

export function Button({ testid, tone = "plain", type = "button", children, ...rest }: ButtonProps) {
  return (
    <button type={type} class="cmn-button" data-testid={testid} data-tone={tone} {...rest}>
      {children}
    </button>
  );
}

/** Text to the letter, in a box that scrolls and so can be reached with the Tab key. */
export function Verbatim({ label, testid, text }: { label: string; testid: string; text: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
    // biome-ignore lint/a11y/useSemanticElements: a section cannot be preformatted
    <pre tabIndex={0} role="region" aria-label={label} data-testid={testid}>
      {text}
    </pre>
  );
}

export function Labelled({ text, title, children }: { text: string; title?: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is among the children
    <label class="cmn-labelled" {...(title && { title })}>
      <span class="cmn-quiet">{text}</span>
      {children}
    </label>
  );
}

export function Checkbox({
  text,
  testid,
  checked,
  disabled,
  title,
  onChoose,
}: {
  text: string;
  testid: string;
  checked: boolean;
  disabled?: boolean;
  title?: string;
  onChoose(on: boolean): Promise<unknown>;
}) {
  const [shown, choose] = useChoice(checked, onChoose);
  return (
    <label class="cmn-labelled" {...(title && { title })}>
      <input
        type="checkbox"
        data-testid={testid}
        checked={shown}
        disabled={disabled ?? false}
        onChange={(event) => choose(event.currentTarget.checked)}
      />
      {text}
    </label>
  );
}

interface SelectProps {
  testid: string;
  label: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  disabled?: boolean;
  onChoose(value: string): Promise<unknown>;
}

export function Select({ testid, label, value, options, disabled, onChoose }: SelectProps) {
  const [shown, choose] = useChoice(value, onChoose);
  return (
    <select
      aria-label={label}
      data-testid={testid}
      value={shown}
      disabled={disabled ?? false}
      onChange={(event) => choose(event.currentTarget.value)}
    >
      {options.map(([each, text]) => (
        <option key={each} value={each}>
          {text}
        </option>
      ))}
    </select>
  );
}

interface SegmentsProps<T extends string> {
  label: string;
  testid: string;
  value: T;
  options: readonly (readonly [value: T, text: string])[];
  title?: string;
  /** The one that cannot be chosen now; the title says why. */
  disabled?: T;
  /** -1 where another key than Tab leads to it, as in the rows of a list. */
  tabIndex?: number;
  onChoose(value: T): Promise<unknown>;
}

/** One of a few, as radio buttons: arrow keys move between them. */
export function Segments<T extends string>({
  label,
  testid,
  value,
  options,
  title,
  disabled,
  tabIndex = 0,
  onChoose,
}: SegmentsProps<T>) {
  const [shown, choose] = useChoice(value, onChoose, label);
  const name = useUniqueId();
  return (
    <span class="cmn-segments" role="radiogroup" aria-label={label} data-testid={testid} {...(title && { title })}>
      {options.map(([each, text]) => (
        <label key={each}>
          <input
            type="radio"
            name={name}
            value={each}
            tabIndex={tabIndex}
            data-testid={`${testid}-${each}`}
            checked={each === shown}
            disabled={each === disabled}
            onChange={() => choose(each)}
          />
          <BoldWidth>{text}</BoldWidth>
        </label>
      ))}
    </span>
  );
}

/** Text that takes the same room whether it is bold or not, so that nothing moves when it becomes the chosen one. */
function BoldWidth({ children }: { children: string }) {
  return (
    <span class="cmn-bold-width" data-text={children}>
      {children}
    </span>
  );
}

interface TabsProps<T extends string> {
  label: string;
  tabs: readonly (readonly [key: T, title: string])[];
  shown: T;
  onShow(key: T): void;
  /** Draw the panel of a tab. All of them stay, so that each keeps what was typed and scrolled. */
  panel(key: T): ComponentChildren;
}

export function Tabs<T extends string>({ label, tabs, shown, onShow, panel }: TabsProps<T>) {
  const id = useUniqueId();
  const list = useRef<HTMLDivElement>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const place = (tabs.findIndex(([key]) => key === shown) + step + tabs.length) % tabs.length;
    onShow((tabs[place] as readonly [T, string])[0]);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[place]?.focus();
  };
  return (
    <>
      <div class="cmn-tabs" role="tablist" tabIndex={-1} aria-label={label} ref={list} onKeyDown={onKeyDown}>
        {tabs.map(([key, title]) => (
          <button
            key={key}
            type="button"
            role="tab"
            id={`${id}-${key}`}
            aria-controls={`${id}-${key}-panel`}
            aria-selected={key === shown}
            tabIndex={key === shown ? 0 : -1}
            data-testid={`tab-${key}`}
            onClick={() => onShow(key)}
          >
            <BoldWidth>{title}</BoldWidth>
          </button>
        ))}
      </div>
      {tabs.map(([key]) => (
        <div
          key={key}
          class="cmn-tab-panel"
          role="tabpanel"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
          tabIndex={0}
          id={`${id}-${key}-panel`}
          aria-labelledby={`${id}-${key}`}
          hidden={key !== shown}
          data-testid={`panel-${key}`}
        >
          {panel(key)}
        </div>
      ))}
    </>
  );
}

/** A tool's name, which breaks after a colon, an underscore, a hyphen or a dot rather than within a word. */
export function BreakableName({ text }: { text: string }) {
  return text.split(/(?<=[:_.-])/).map((part) => (
    <>
      {part}
      <wbr />
    </>
  ));
}

/** Text for a projector: makes the whole widget larger. */
export function LargeText() {
  const onClick = (event: TargetedMouseEvent<HTMLButtonElement>) => {
    const on = event.currentTarget.closest(".cmn-widget")?.classList.toggle("cmn-large");
    event.currentTarget.setAttribute("aria-pressed", String(on));
  };
  return (
    <Button testid="large-text" tone="quiet" aria-pressed="false" title="For a projector" onClick={onClick}>
      Large text
    </Button>
  );
}

/** A button that copies a text and says that it did. */
export function CopyButton({
  text,
  testid,
  children = "Copy",
}: {
  text(): string | Promise<string | undefined>;
  testid: string;
  children?: ComponentChildren;
}) {
  const onClick = async (event: TargetedMouseEvent<HTMLButtonElement>) => {
    const button = event.currentTarget;
    const copied = await text();
    if (copied !== undefined) await copyFrom(button, copied);
  };
  return (
    <Button testid={testid} tone="quiet" onClick={onClick}>
      {children}
    </Button>
  );
}
