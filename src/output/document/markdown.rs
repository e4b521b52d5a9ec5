//! A document as GitHub-flavoured Markdown, for a step summary, a comment or an issue.

use itertools::Itertools as _;

use super::block::{Block, Document, Field, Item, Stack};
use super::table::{Cell, Table};
use super::text::{Span, Text, Tone, faint};
use super::text_chart::{UNICODE, draw};
use crate::base::units::{counted, escape_command_lines, escape_text, is_number};

/// Width of a chart.
const WIDTH: usize = 90;

/// Renders `document` as Markdown.
pub fn markdown(document: &Document) -> String {
    let mut text = document.blocks.iter().map(block).join("\n\n");
    text.push('\n');
    escape_command_lines(&text)
}

fn block(block: &Block) -> String {
    match block {
        Block::Headline(answer, context) => {
            let context = Some(context).filter(|context| !context.is_empty());
            let context = context.map_or_else(String::new, |text| format!(" ({})", prose(text)));
            format!("## {}{context}", prose(answer))
        }
        Block::Heading(level, text) => format!("{} {}", "#".repeat(usize::from(*level) + 1), prose(text)),
        Block::Paragraph(text) => line_start(text),
        Block::Fields(fields) => fields.iter().map(field).join("\n"),
        Block::List(items) => items.iter().map(item).join("\n"),
        Block::Table(table) => self::table(table),
        Block::Chart(chart) => code_fence(&draw(chart, WIDTH, UNICODE)),
        Block::Bar(parts) => parts.iter().map(|part| prose(&part.label)).join(" · "),
        Block::Source(source) => code_fence(&source.numbered()),
        Block::Callers(callers) => format!("called from {}", callers.iter().map(prose).format(" ← ")),
        Block::Stack(stack) => self::stack(stack),
        Block::Warning(code, text) => format!("> **{}**: {}", plain_text(code, Context::Text), prose(text)),
    }
}

fn field(field: &Field) -> String {
    let name = plain_text(&field.name, Context::Text);
    match field.texts.as_slice() {
        [text] if field.name.is_empty() => format!("- {}", line_start(text)),
        [text] => format!("- **{name}**: {}", prose(text)),
        texts => nested_list(&format!("- **{name}**:"), texts),
    }
}

fn item(item: &Item) -> String {
    nested_list(&format!("- {}", line_start(&item.text)), &item.details)
}

/// `first`, with a nested list item for each of `texts`.
fn nested_list(first: &str, texts: &[Text]) -> String {
    [first.to_owned()].into_iter().chain(texts.iter().map(|text| format!("\n  - {}", line_start(text)))).collect()
}

fn table(table: &Table) -> String {
    let header = table.columns.iter().map(|column| plain_text(&column.heading, Context::Cell)).join(" | ");
    let ruler = table.columns.iter().map(|column| if column.is_text { "---" } else { "---:" }).join(" | ");
    let rows = table.rows.iter().map(|cells| cells.iter().map(cell).join(" | "));
    let lines = [header, ruler].into_iter().chain(rows).map(|cells| format!("| {cells} |")).join("\n");
    [lines].into_iter().chain(table.note.as_ref().map(prose)).join("\n\n")
}

fn cell(cell: &Cell) -> String {
    let mark = cell.mark.map(|mark| format!("{} ", mark.glyphs()[0]));
    let indent = "&emsp;".repeat(cell.depth.unwrap_or(0).into());
    let text = format!("{indent}{}", inline(&cell.text, Context::Cell));
    let details = cell.details.iter().map(|text| format!("<br>{}", inline(text, Context::Cell)));
    mark.into_iter().chain([text]).chain(details).collect()
}

fn stack(stack: &Stack) -> String {
    let shown = stack.frames.len();
    let (name, folded, frames) = (stack.name, stack.folded_frames, code_fence(&stack.frames));
    format!("<details><summary>{name} ({shown} shown, {folded} folded)</summary>\n\n{frames}\n\n</details>")
}

/// A code block of `lines`; its fence is longer than any run of backquotes in them.
fn code_fence(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escape_text(line)).collect();
    let longest = lines.iter().map(|line| longest_run(line)).fold(0, usize::max);
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}\n{}\n{fence}", lines.join("\n"))
}

/// The longest run of backquotes.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).fold(0, usize::max)
}

/// Where a text is used, which decides what must be escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Text,
    /// A table cell, which `|` would end.
    Cell,
}

fn prose(text: &Text) -> String {
    inline(text, Context::Text)
}

fn inline(text: &Text, context: Context) -> String {
    let mut out = String::new();
    for span in text.spans.iter().filter(|span| !span.text.is_empty()) {
        let span = self::span(span, context);
        // Adjacent backquotes of two code spans would be read as one longer quote.
        if out.ends_with('`') && span.starts_with('`') {
            out.push_str("<!-- -->");
        }
        out.push_str(&span);
    }
    out
}

/// `text` at the start of a line: escapes what would make it a list item or a heading.
fn line_start(text: &Text) -> String {
    let text = prose(text);
    let text = text.trim_start();
    let (digits, mark) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let mut after_mark = mark.chars();
    match (digits.len(), after_mark.next()) {
        (0, Some('-' | '+' | '=')) | (1.., Some('.' | ')'))
            if !after_mark.as_str().starts_with(char::is_alphanumeric) =>
        {
            format!("{digits}\\{mark}")
        }
        _ => text.to_owned(),
    }
}

fn span(span: &Span, context: Context) -> String {
    let text = if span.is_code { inline_code(&span.text, context) } else { plain_text(&span.text, context) };
    if matches!(span.tone, Tone::Plain | Tone::Faint) {
        return text;
    }
    // Emphasis must not start or end with a space.
    let inner = text.trim();
    text.replacen(inner, &format!("**{inner}**"), usize::from(!inner.is_empty()))
}

/// Escapes `text` so that it has no effect as markup. All text but code goes through this function. Words that would
/// become links or mentions are shown as code.
fn plain_text(text: &str, context: Context) -> String {
    escape_text(text)
        .split(' ')
        .map(|word| if is_autolinked(word) { inline_code(word, context) } else { escape_markdown(word) })
        .join(" ")
}

/// Whether GitHub turns `word` into a mention or a link by itself: `@name`, a mail address, a URL, an issue (`GH-1`) or a
/// commit (hexadecimal digits).
fn is_autolinked(word: &str) -> bool {
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let lower = word.to_ascii_lowercase();
    parts.any(is_issue_or_commit)
        || word.split('@').skip(1).any(|rest| rest.starts_with(char::is_alphanumeric))
        || ["://", "www.", "mailto:", "xmpp:"].iter().any(|mark| lower.contains(mark))
}

/// Whether `part` of a word is `GH-1`, or the name of a commit or the start of one, of 7 to 40 digits. Numbers alone are
/// sizes and counts.
fn is_issue_or_commit(part: &str) -> bool {
    let has_prefix = part.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("gh-"));
    let is_issue = has_prefix && part.get(3..).is_some_and(|rest| is_number(rest.split('-').next().unwrap_or(rest)));
    let is_commit = part.split('-').any(|digits| {
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (7..=40).contains(&digits.len()) && is_hex && (digits.len() == 40 || !is_number(digits))
    });
    is_issue || is_commit
}

fn escape_markdown(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let marks = ['\\', '`', '*', '_', '|', '[', ']', '#', '~', '$'];
    marks.iter().fold(text, |text, mark| text.replace(*mark, &format!("\\{mark}")))
}

/// A code span, quoted by more backquotes than `text` has in a row.
fn inline_code(text: &str, context: Context) -> String {
    let text = escape_text(text);
    // On GitHub `|` ends a cell even inside code, unless it is escaped.
    let text = if context == Context::Cell { text.replace('|', "\\|") } else { text };
    let quotes = "`".repeat(longest_run(&text) + 1);
    // Markdown strips one space at both ends of a code span.
    let is_edged = text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']);
    let blank = if is_edged { " " } else { "" };
    format!("{quotes}{blank}{text}{blank}{quotes}")
}

/// GitHub's limit for a comment, in UTF-16 units. Other code hosts allow more.
const MAX_COMMENT_LEN: usize = 65_536;

/// Renders `document` as Markdown that fits into a comment. Omits the last blocks if it must, and says
/// how many.
pub fn markdown_comment(document: &Document) -> String {
    markdown_within(document, MAX_COMMENT_LEN)
}

fn markdown_within(document: &Document, max_len: usize) -> String {
    let shorter = (0..document.blocks.len()).rev().map(|blocks| markdown(&first_blocks(document, blocks)));
    let mut texts = std::iter::once_with(|| markdown(document)).chain(shorter);
    texts.find(|text| text.encode_utf16().count() <= max_len).unwrap_or_else(|| markdown(&first_blocks(document, 0)))
}

/// The first `blocks` blocks of `document`, and a note on the others.
fn first_blocks(document: &Document, blocks: usize) -> Document {
    let mut start = Document { blocks: document.blocks.iter().take(blocks).cloned().collect(), sections: Vec::new() };
    let omitted = counted(document.blocks.len().saturating_sub(blocks) as u64, "further part");
    start.paragraph(faint(format!("{omitted} left out to fit into a comment")));
    start
}

#[cfg(test)]
mod tests {
    use super::super::block::Source;
    use super::super::text::{self, strong};
    use super::*;

    fn paragraph(text: impl Into<Text>) -> String {
        let mut document = Document::default();
        document.paragraph(text);
        markdown(&document)
    }

    #[test]
    fn text_that_would_be_markup_is_escaped() {
        assert_eq!(paragraph("a_b*c*"), "a\\_b\\*c\\*\n");
        assert_eq!(paragraph("<img src=x> &lt;"), "&lt;img src=x&gt; &amp;lt;\n");
        assert_eq!(paragraph("[x](y) #1 ~~no~~ $x$"), "\\[x\\](y) \\#1 \\~\\~no\\~\\~ \\$x\\$\n");
        assert_eq!(paragraph("a\n# b\u{1b}[2J"), "a\\\\n\\# b\\\\u{1b}\\[2J\n");
        assert_eq!(paragraph(strong(" a* ").and("b")), "**a\\*** b\n");
        assert_eq!(paragraph(strong("")), "\n");
        for (text, shown) in [
            ("- a", "\\- a"),
            ("  + a", "\\+ a"),
            ("---", "\\---"),
            ("1. a", "1\\. a"),
            ("+64 MiB", "+64 MiB"),
            ("1.50 GiB", "1.50 GiB"),
            ("    a", "a"),
        ] {
            assert_eq!(paragraph(text), format!("{shown}\n"));
        }
    }

    #[test]
    fn nothing_is_mentioned_or_linked() {
        assert_eq!(paragraph("by @torvalds (@x) at a_b@c.d"), "by `@torvalds` `(@x)` at `a_b@c.d`\n");
        assert_eq!(paragraph("see https://x.y/z_1 and WWW.x.y"), "see `https://x.y/z_1` and `WWW.x.y`\n");
        assert_eq!(paragraph("3 @ 4 MiB"), "3 @ 4 MiB\n");
        let commit = "1234567890abcdef1234567890abcdef12345678";
        assert_eq!(paragraph(format!("GH-1, x/gh-23: {commit}")), format!("`GH-1,` `x/gh-23:` `{commit}`\n"));
        assert_eq!(paragraph("fixes abcdef0 (deadbeef)"), "fixes `abcdef0` `(deadbeef)`\n");
        let numbers = "GH 1, GH-x, high-1, 1234567 entries, 0x7f0000000000, feedback, 12345678901234567890";
        assert_eq!(paragraph(numbers), format!("{numbers}\n"));
        assert_eq!(paragraph("::error::x"), ":\\u{3a}error::x\n");
        assert_eq!(paragraph(Text::from("a@b").and(text::code("c"))), "`a@b`<!-- -->`c`\n");
        let source = ["  ::set-output name=a::b", "##[group]x"].map(str::to_owned).to_vec();
        let mut document = Document::default();
        document.source(Source { first: 8, lines: source, marked: 0, note: String::new() });
        assert_eq!(markdown(&document), "```\n8   ::set-output name=a::b\n9 #\\u{23}[group]x\n```\n");
    }

    #[test]
    fn code_cannot_be_closed() {
        assert_eq!(paragraph(text::code("a.py:1 in f")), "`a.py:1 in f`\n");
        assert_eq!(paragraph(text::code("a`b``c")), "```a`b``c```\n");
        assert_eq!(paragraph(text::code("`a`")), "`` `a` ``\n");
        assert_eq!(paragraph(text::code("a|b\\")), "`a|b\\`\n");
        assert_eq!(paragraph(text::code("a\n\n# b")), "`a\\n\\n# b`\n");
    }

    #[test]
    fn cells_are_not_ended_by_a_bar() {
        let mut document = Document::default();
        let table = Table::from_rows([()]).text("", |()| "a|b").number("", |()| text::code("c|d\ne"));
        document.table(table.number("x|y", |()| Cell::with_details("f", vec!["g".into()])));
        let expected = "|  |  | x\\|y |\n| --- | ---: | ---: |\n| a\\|b | `c\\|d\\ne` | f<br>g |\n";
        assert_eq!(markdown(&document), expected);
    }

    #[test]
    fn fences_and_folds_cannot_be_closed() {
        let mut document = Document::default();
        let source = ["```", "</details>", "````x"].map(str::to_owned).to_vec();
        document.source(Source { first: 1, lines: source, marked: 0, note: String::new() });
        assert_eq!(markdown(&document), "`````\n1 ```\n2 </details>\n3 ````x\n`````\n");
        let mut document = Document::default();
        document.stack(Stack { name: "stack", frames: vec!["</details>".to_owned()], folded_frames: 2 });
        let expected = "<details><summary>stack (1 shown, 2 folded)</summary>\n\n```\n</details>\n```\n\n</details>\n";
        assert_eq!(markdown(&document), expected);
    }

    #[test]
    fn omits_last_blocks_if_it_must() {
        let mut document = Document::default();
        for part in 0..100 {
            document.paragraph(format!("{part} {}", "y".repeat(100)));
        }
        let complete = markdown(&document);
        assert_eq!(markdown_within(&document, complete.len()), complete);
        let text = markdown_within(&document, 1000);
        assert!(text.len() <= 1000 && text.starts_with("0 yy"), "{text}");
        assert!(text.contains("91 further parts left out"), "{text}");
    }
}
