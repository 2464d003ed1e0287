import { render } from "preact";
import { followTheme, Player } from "../player/Player";
import { Printed } from "../player/Printed";
import { withTexts } from "../player/slides";
import type { Lesson } from "../player/state";

const lesson = withTexts(JSON.parse(document.getElementById("player")?.textContent ?? "") as Lesson & { texts: string[] });
const root = document.getElementById("root") as HTMLElement;
followTheme();
render(<Player lesson={lesson} />, root);

// On paper there are all slides, one below the other.
const paper = document.createElement("div");
paper.id = "paper";
document.body.append(paper);
window.addEventListener("beforeprint", () => render(<Printed lesson={lesson} />, paper));
window.addEventListener("afterprint", () => render(null, paper));
