import { useEffect, useRef, useState } from "preact/hooks";
import "../lib/base.css";
import "../tokens/tokens.css";
import "../explorer/parts.css";
import "./player.css";
import { Button, LargeText, Tabs } from "../lib/controls";
import { number } from "../lib/words";
import { type Action, actionOf, KEYS } from "./keys";
import { SearchTab } from "./SearchTab";
import { SlideView } from "./SlideView";
import { labelOf, placeIn } from "./slides";
import type { Lesson, Slide } from "./state";
import { Timeline } from "./Timeline";

const SECONDS = 4;
const TABS = [
  ["steps", "Conversation"],
  ["search", "Search"],
] as const;

/** A conversation that is stepped through. */
export function Player({ lesson }: { lesson: Lesson }) {
  const last = Math.max(0, lesson.slides.length - 1);
  const [place, setPlace] = useState(() => placeIn(location.hash, lesson.slides.length) ?? 0);
  const [playing, setPlaying] = useState(false);
  const [help, setHelp] = useState(false);
  const [tab, setTab] = useState<"steps" | "search">("steps");
  const root = useRef<HTMLElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const go = (to: number) => {
    setPlaying(false);
    setTab("steps");
    setPlace(Math.min(last, Math.max(0, to)));
  };
  const act: Record<Action, () => void> = {
    next: () => go(place + 1),
    back: () => go(place - 1),
    first: () => go(0),
    last: () => go(last),
    play: () => {
      if (place === last) setPlace(0);
      setTab("steps");
      setPlaying(!playing);
    },
    search: () => {
      setTab("search");
      root.current?.querySelector<HTMLElement>("[data-testid=query]")?.focus();
    },
    large: () => root.current?.querySelector<HTMLElement>("[data-testid=large-text]")?.click(),
    dark: toggleDark,
    help: () => setHelp(!help),
    close: () => setHelp(false),
  };
  const acts = useRef(act);
  acts.current = act;

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const action = actionOf(event);
      if (!action) return;
      event.preventDefault();
      acts.current[action]();
    };
    const onHash = () => setPlace((shown) => placeIn(location.hash, last + 1) ?? shown);
    document.addEventListener("keydown", onKey);
    window.addEventListener("hashchange", onHash);
    return () => {
      document.removeEventListener("keydown", onKey);
      window.removeEventListener("hashchange", onHash);
    };
  }, [last]);
  useEffect(() => {
    stage.current?.querySelector("[data-testid=panel-steps]")?.scrollTo(0, 0);
    remember(place);
  }, [place]);
  useEffect(() => {
    if (!playing) return;
    if (place === last) return setPlaying(false);
    const timer = setTimeout(() => setPlace(place + 1), 1000 * SECONDS);
    return () => clearTimeout(timer);
  }, [playing, place, last]);

  const slide = lesson.slides[place];
  const panel = (key: "steps" | "search") => {
    if (key === "search") return <SearchTab lesson={lesson} shown={tab === "search"} onGo={go} />;
    return slide ? <SlideView key={place} lesson={lesson} place={place} /> : <p>No turns yet.</p>;
  };
  return (
    <main class="cmn-widget cmn-player" ref={root} data-testid="player">
      <header>
        <h1 class="cmn-clip" title={lesson.title}>
          {lesson.title || "A conversation"}
        </h1>
        <span class="cmn-quiet cmn-about cmn-clip">{aboutOf(lesson)}</span>
        <span class="cmn-tools">
          <LargeText />
          <Button testid="dark" tone="quiet" aria-label="Dark or light" title="Dark or light" onClick={toggleDark}>
            ◐
          </Button>
          <Button testid="help" tone="quiet" aria-expanded={help} aria-label="Keys" title="Keys" onClick={act.help}>
            ?
          </Button>
        </span>
      </header>
      {help && <Keys lesson={lesson} />}
      <div class="cmn-stage">
        <Timeline lesson={lesson} place={place} onGo={go} />
        <div class="cmn-side" ref={stage}>
          <Tabs label="Player" tabs={TABS} shown={tab} onShow={(key) => setTab(key)} panel={panel} />
        </div>
      </div>
      <footer>
        <Button testid="back" aria-label="Back" disabled={place === 0} onClick={act.back}>
          ←
        </Button>
        <Button testid="play" aria-label={playing ? "Pause" : "Play"} aria-pressed={playing} onClick={act.play}>
          {playing ? "❚❚" : "▶"}
        </Button>
        <Button testid="next" tone="primary" aria-label="Next" disabled={place === last} onClick={act.next}>
          →
        </Button>
        <input
          class="cmn-progress"
          type="range"
          min={1}
          max={last + 1}
          value={place + 1}
          aria-label="Step"
          aria-valuetext={slide && `${number.format(place + 1)}: ${spoken(slide)}`}
          title={slide && spoken(slide)}
          data-testid="go-to"
          style={{ "--cmn-done": `${(100 * place) / Math.max(1, last)}%` }}
          onInput={(event) => go(Number(event.currentTarget.value) - 1)}
        />
        <span role="status" class="cmn-number" data-testid="progress">
          {slide && `${number.format(place + 1)} of ${number.format(last + 1)}`}
          <span class="cmn-visually-hidden">{slide && `: ${spoken(slide)}`}</span>
        </span>
      </footer>
    </main>
  );
}

/** The name of this page's file. */
function fileName(): string {
  const name = location.pathname.split("/").pop() || "lesson.html";
  try {
    return decodeURIComponent(name).slice(0, 80);
  } catch {
    // Its address is no text in UTF-8.
    return name.slice(0, 80);
  }
}

function spoken(slide: Slide): string {
  return labelOf(slide).join(" ").slice(0, 200);
}

function aboutOf({ began, model }: Lesson): string {
  const when = began === null ? "" : new Date(1000 * began).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
  return [when, model].filter(Boolean).join(" · ");
}

function Keys({ lesson }: { lesson: Lesson }) {
  return (
    <div class="cmn-help" data-testid="keys">
      <dl>
        {KEYS.map(([keys, does]) => (
          <div key={keys}>
            <dt>{keys}</dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p class="cmn-quiet">
        {lesson.cassette ? (
          <>
            This page contains its cassette: <code>{`session = Session.quick(cassette=${JSON.stringify(fileName())})`}</code>,
            then <code>session.cassettes.replay()</code>
          </>
        ) : (
          "The conversation is too large to replay this page as a cassette."
        )}
      </p>
    </div>
  );
}

/** The theme of the system, until a person chooses the other one. */
export function followTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => setDark(dark.matches);
  follow();
  dark.addEventListener("change", follow);
}

function setDark(on: boolean): void {
  document.documentElement.dataset.theme = on ? "dark" : "light";
}

function toggleDark(): void {
  setDark(document.documentElement.dataset.theme !== "dark");
}

/** Name the place in the address, so that it can be shared; in some frames a page may not. */
function remember(place: number): void {
  try {
    history.replaceState(null, "", `#${place + 1}`);
  } catch {
    // The page works without.
  }
}
