import { SlideView } from "./SlideView";
import type { Lesson } from "./state";

/** All slides, one below the other. */
export function Printed({ lesson }: { lesson: Lesson }) {
  return (
    <div class="cmn-widget cmn-player cmn-printed" data-testid="printed">
      <h1>{lesson.title}</h1>
      {lesson.slides.map((_, place) => (
        <SlideView key={place} lesson={lesson} place={place} />
      ))}
    </div>
  );
}
