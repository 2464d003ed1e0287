import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button, Checkbox } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, number } from "../lib/words";
import { when } from "./conversation";
import type { ConversationList, ConversationRow, PanelState } from "./state";

/** The saved conversations, the last changed one first: found, opened, and kept in order. */
export function Conversations({ onOpened, onClose }: { onOpened(): void; onClose(): void }) {
  const bridge = useBridge<PanelState>();
  const { version, note } = useWidgetState<PanelState>().conversations;
  const { busy } = useWidgetState<PanelState>().conversation;
  const [query, setQuery] = useState("");
  const [archived, setArchived] = useState(false);
  const [list, setList] = useState<ConversationList | null>(null);
  const [unfolded, setUnfolded] = useState<string | null>(null);
  const search = useRef<HTMLInputElement>(null);
  const rows = useRef<HTMLUListElement>(null);
  useLayoutEffect(() => search.current?.focus(), []);
  useEffect(() => {
    let current = true;
    bridge.request<ConversationList>("conversations.found", { query, archived }).then(
      (answer) => current && setList(answer),
      (error: Error) => {
        bridge.error.value = error.message;
      },
    );
    return () => {
      current = false;
    };
  }, [bridge, query, archived, version]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      onClose();
    }
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const titles = [...(rows.current?.querySelectorAll<HTMLElement>("[data-testid=conversation]") ?? [])];
    const place = titles.indexOf(event.target as HTMLElement);
    if (!step || (place < 0 && event.target !== search.current)) return;
    event.preventDefault();
    (titles[place + step] ?? (step < 0 ? search.current : null))?.focus();
  };
  const act: Act = async (command, row, said, more) => {
    const problems = await bridge.call<string[] | null>(`conversations.${command}`, { id: row.id, ...more });
    if (problems === undefined) return false;
    if (problems?.length) bridge.error.value = problems.join("\n");
    bridge.say(`${said}: ${row.title}`);
    setUnfolded(null);
    if (command === "open") onOpened();
    else search.current?.focus();
    return true;
  };
  return (
    <aside class="cmn-conversations" aria-label="Conversations" data-testid="conversations-list" onKeyDown={onKeyDown}>
      <div class="cmn-conversations-top">
        <input
          ref={search}
          type="search"
          class="cmn-grow"
          placeholder="Search conversations"
          aria-label="Search conversations"
          autocomplete="off"
          data-testid="conversations-search"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
        <Button testid="conversations-close" tone="quiet" aria-label="Close the list of conversations" onClick={onClose}>
          ✕
        </Button>
      </div>
      <p class="cmn-quiet" role="status" data-testid="conversations-found">
        {list && summary(list, query, archived)}
      </p>
      <ul ref={rows}>
        {list?.rows.map((row) => (
          <Item
            key={row.id}
            row={row}
            current={row.id === list.current}
            archived={archived}
            busy={busy}
            unfolded={row.id === unfolded}
            onUnfold={() => setUnfolded(row.id === unfolded ? null : row.id)}
            act={act}
          />
        ))}
      </ul>
      <div class="cmn-conversations-foot">
        <Checkbox text="Archived" testid="conversations-archived" checked={archived} onChoose={async (on) => setArchived(on)} />
        {note && <p class="cmn-quiet">{note}</p>}
      </div>
    </aside>
  );
}

function summary({ rows, total }: ConversationList, query: string, archived: boolean): string {
  if (!total)
    return query.trim() ? "No conversation contains this text." : archived ? "No conversation is archived." : "None yet.";
  if (rows.length < total) return `The last ${number.format(rows.length)} of ${counted(total, "conversation")}`;
  return counted(total, "conversation");
}

/** Run a command on a conversation; what a screen reader says then is `said`. Resolves to whether it was done. */
type Act = (command: string, row: ConversationRow, said: string, more?: object) => Promise<boolean>;

interface ItemProps {
  row: ConversationRow;
  current: boolean;
  archived: boolean;
  busy: boolean;
  unfolded: boolean;
  onUnfold(): void;
  act: Act;
}

function Item({ row, current, archived, busy, unfolded, onUnfold, act }: ItemProps) {
  return (
    <li data-current={current}>
      <div class="cmn-conversation-line">
        <button
          type="button"
          class="cmn-conversation"
          data-testid="conversation"
          aria-current={current}
          title={row.title}
          disabled={busy && !current}
          onClick={() => current || act("open", row, "Opened")}
        >
          <span class="cmn-clip">{row.title}</span>
          <span class="cmn-quiet cmn-clip">
            {when(row.changed)} · {row.about}
          </span>
        </button>
        <Button
          testid="conversation-more"
          tone="quiet"
          aria-label={`More for ${row.title}`}
          aria-expanded={unfolded}
          onClick={onUnfold}
        >
          ⋯
        </Button>
      </div>
      {unfolded && <Actions row={row} archived={archived} busy={busy} act={act} />}
    </li>
  );
}

/** What can be done with a conversation beside opening it. Deleting has to be confirmed. */
function Actions({ row, archived, busy, act }: { row: ConversationRow; archived: boolean; busy: boolean; act: Act }) {
  const [asks, setAsks] = useState<"title" | "delete" | null>(null);
  const [title, setTitle] = useState(row.title);
  const rename = () => void (title.trim() && act("rename", row, "Renamed", { title }));
  const leave = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    setAsks(null);
  };
  if (asks === "title")
    return (
      <form
        class="cmn-row cmn-conversation-actions"
        onKeyDown={leave}
        onSubmit={(event) => {
          event.preventDefault();
          rename();
        }}
      >
        <input
          ref={focusOnce}
          class="cmn-grow"
          aria-label="Title"
          data-testid="conversation-title"
          value={title}
          onInput={(event) => setTitle(event.currentTarget.value)}
        />
        <Button testid="conversation-rename-yes" tone="primary" type="submit">
          Rename
        </Button>
      </form>
    );
  if (asks === "delete")
    return (
      <fieldset class="cmn-row cmn-conversation-actions" aria-label={`Delete ${row.title}?`} onKeyDown={leave}>
        <span class="cmn-grow">Delete for good?</span>
        <Button testid="conversation-delete-yes" tone="danger" onClick={() => act("delete", row, "Deleted")}>
          Delete
        </Button>
        <Button testid="conversation-delete-no" onClick={() => setAsks(null)} ref={focusOnce}>
          Cancel
        </Button>
      </fieldset>
    );
  return (
    <div class="cmn-row cmn-conversation-actions">
      <Button testid="conversation-rename" tone="quiet" onClick={() => setAsks("title")}>
        Rename
      </Button>
      <Button
        testid="conversation-fork"
        tone="quiet"
        title="Continue in a copy, and keep this one unchanged"
        disabled={busy}
        onClick={() => act("fork", row, "Forked")}
      >
        Fork
      </Button>
      <Button
        testid="conversation-archive"
        tone="quiet"
        onClick={() => (archived ? act("restore", row, "Restored") : act("archive", row, "Archived"))}
      >
        {archived ? "Restore" : "Archive"}
      </Button>
      <Button testid="conversation-delete" tone="quiet" onClick={() => setAsks("delete")}>
        Delete
      </Button>
    </div>
  );
}

const focusOnce = (element: HTMLElement | null) => element?.focus();
