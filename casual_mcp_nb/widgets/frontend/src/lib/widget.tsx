// What every widget has: a root with its name, a line for errors, one that is read out, and what it says when its kernel is gone.

import { type ComponentType, createContext, render } from "preact";
import { useContext, useEffect, useErrorBoundary, useRef } from "preact/hooks";
import "./base.css";
import { Bridge, followPatches, GONE, type Model } from "./bridge";
import { keepKeys } from "./keys";

const BridgeContext = createContext<Bridge<unknown> | null>(null);

/** The connection of the widget that a component is in. */
export function useBridge<S>(): Bridge<S> {
  const bridge = useContext(BridgeContext);
  if (!bridge) throw new Error("This component is outside a widget.");
  return bridge as Bridge<S>;
}

/** The present state of the widget that a component is in; the component is drawn again when it changes. */
export function useWidgetState<S>(): S {
  return useBridge<S>().state.value;
}

interface View {
  model: Model;
  el: HTMLElement;
}

/** What anywidget runs: a body, drawn in the frame that all widgets share; one with its `ownErrorLine` draws that itself. */
export function widget(title: string, Body: ComponentType, className = "", ownErrorLine = false) {
  return {
    initialize: ({ model }: { model: Model }) => followPatches(model),
    render({ model, el }: View) {
      const bridge = new Bridge<unknown>(model);
      // The picture below a widget is for where no kernel runs.
      const hidden = document.createElement("style");
      hidden.textContent = `.cmn-picture-${model.get("picture_key")} { display: none; }`;
      document.head.append(hidden);
      el.classList.add("cmn-view");
      render(
        <BridgeContext.Provider value={bridge as Bridge<unknown>}>
          <Frame title={title} className={className} Body={Body} ownErrorLine={ownErrorLine} />
        </BridgeContext.Provider>,
        el,
      );
      return () => {
        render(null, el);
        el.classList.remove("cmn-view");
        bridge.close();
        hidden.remove();
      };
    },
  };
}

interface FrameProps {
  title: string;
  className: string;
  Body: ComponentType;
  ownErrorLine: boolean;
}

function Frame({ title, className, Body, ownErrorLine }: FrameProps) {
  const { live, announcement } = useBridge();
  const root = useRef<HTMLElement>(null);
  useEffect(() => (root.current ? keepKeys(root.current) : undefined), []);
  return (
    // The root can have the focus, so that a click beside the controls gives the keys to the widget.
    <section
      ref={root}
      class={`cmn-widget ${className}`}
      tabIndex={-1}
      aria-label={title}
      data-testid={title.toLowerCase().replaceAll(" ", "-")}
    >
      {!live.value && (
        <div class="cmn-alert" role="alert" data-testid="gone">
          {GONE}
        </div>
      )}
      {!ownErrorLine && <ErrorLine />}
      <div class="cmn-frame" inert={!live.value}>
        <Guarded Body={Body} />
      </div>
      <div class="cmn-visually-hidden" role="status" data-testid="status">
        {announcement}
      </div>
    </section>
  );
}

/** The last error of a command, where a person looks. */
export function ErrorLine() {
  const { error } = useBridge();
  return (
    <div class="cmn-alert" role="alert" data-testid="alert" hidden={error.value === null}>
      {error.value !== null && (
        <>
          <span class="cmn-grow">⚠ {error.value}</span>
          <button
            type="button"
            class="cmn-button"
            data-tone="quiet"
            data-testid="alert-close"
            aria-label="Dismiss"
            onClick={() => {
              error.value = null;
            }}
          >
            ✕
          </button>
        </>
      )}
    </div>
  );
}

/** A part that cannot be drawn says so in the line for errors, in place of an empty cell. */
function Guarded({ Body }: { Body: ComponentType }) {
  const bridge = useBridge();
  const [failure] = useErrorBoundary((error: unknown) => {
    bridge.error.value = error instanceof Error ? error.message : String(error);
  });
  return failure ? null : <Body />;
}
