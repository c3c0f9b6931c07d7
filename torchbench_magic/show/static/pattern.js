// A regular expression that a reader typed, or an error in words.
//
// A browser cannot stop a match that is under way, so what could run for ever is refused before it starts: a repetition
// of something that repeats, chooses or may be left out takes time that doubles with each character; otherwise each
// further unbounded repetition multiplies the time by the length of the text, and so does each turn of a counted one.

const MOST_STEPS = 5e7; // of one text, about a tenth of a second
const REPEATED = /^(?:[*+]|\{(?:\d*,|\d{2,})\d*\})/;
const COUNTED = /^\{(\d)\}/;

export function usablePattern(text, longest) { // longest: characters of the longest text that it will be tried on
  const pattern = new RegExp(text, "iu"), groups = [], tooLong = new Error("this pattern takes too long");
  let repeats = 0, varied = false, isInClass = false; // varied: the group at hand repeats or chooses
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (sign === "\\") at++;
    else if (isInClass) isInClass = sign !== "]";
    else if (sign === "[") isInClass = true;
    else if (sign === "(") { groups.push({ varied, repeats }); varied = false; }
    else if (sign === "|") varied = true;
    else if (sign === ")") {
      const rest = text.slice(at + 1), before = groups.pop();
      if (varied && REPEATED.test(rest)) throw tooLong;
      const turns = Number(COUNTED.exec(rest)?.[1] ?? 1), inside = Math.max(repeats - before.repeats, Number(varied && turns > 1));
      repeats = before.repeats + turns * inside;
      varied = before.varied || varied;
    } else if (REPEATED.test(text.slice(at))) { repeats++; varied = true; }
    else if ((sign === "?" && text[at - 1] !== "(") || /^\{\d*,/.test(text.slice(at))) varied = true; // also after a repetition, which is varied already
  }
  let steps = Math.max(longest, 1);
  for (let nth = 1; nth <= repeats; nth++) steps *= longest / nth;
  if (steps > MOST_STEPS) throw tooLong;
  return pattern;
}

