import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const NEAR = 40;

export interface Follow {
  /** Whether the end is out of sight. */
  away: boolean;
  /** Scroll to the end, and stay there. */
  toEnd(): void;
}

/** Keep the end of a box in sight while its content grows, unless the person scrolled up or unfolded something. */
export function useFollow(box: RefObject<HTMLElement | null>, content: RefObject<HTMLElement | null>): Follow {
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const top = useRef(0);
  const look = () => {
    const element = box.current;
    if (!element) return;
    // Not only whether the end is in sight: content that is new since the last scrolling is below it, and is followed.
    if (element.scrollHeight - element.scrollTop - element.clientHeight < NEAR) follows.current = true;
    else if (element.scrollTop < top.current - 1) follows.current = false;
    top.current = element.scrollTop;
    setAway(!follows.current);
  };
  const toEnd = () => {
    follows.current = true;
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
    look();
  };
  useEffect(() => {
    const [outer, inner] = [box.current, content.current];
    if (!outer || !inner) return;
    const observer = new ResizeObserver(() => (follows.current ? toEnd() : look()));
    observer.observe(outer);
    observer.observe(inner);
    // What a person unfolds stays where it is; what it pushes down is not followed.
    const onClick = ({ target }: MouseEvent) => {
      if ((target as Element).closest("summary, [data-action=request]")) follows.current = false;
    };
    outer.addEventListener("click", onClick, true);
    outer.addEventListener("scroll", look, { passive: true });
    return () => observer.disconnect();
  }, []);
  return { away, toEnd };
}
