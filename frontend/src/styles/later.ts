/** Styles that the first sight does not need: every part that is loaded later has them before its own. */

import "./turns.css";
import "./prose.css";
import "./aside.css";
import "./print.css";
