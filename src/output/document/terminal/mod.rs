//! A document as a terminal page.

mod bar;
pub(crate) mod shorten;
mod style;
mod table;

pub use style::Style;

use super::block::{Block, Document, Field, Item, Source, Stack};
use super::text::{Span, Text, display_width, faint};
use super::text_chart::draw;
use crate::base::units::{counted, escape_command_lines};
use itertools::Itertools as _;
use shorten::{fit, fit_spans, wrap};

/// Columns of field names, at least and at most; pages narrower than `NARROW_PAGE` put a longer name above the text.
const NAME_COLUMNS: [usize; 2] = [6, 16];
const NARROW_PAGE: usize = 60;
/// The context of a headline ends here at the latest.
const HEADLINE_COLUMNS: usize = 100;
/// Maximum number of frames shown of a stack, and of callers of a line.
const MAX_FRAMES: usize = 8;
const MAX_CALLERS: usize = 4;

/// Renders the first screen of `document` as a terminal page; [`Document::in_full`] has the rest.
pub fn terminal(document: &Document, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    let mut last = None;
    for block in &document.blocks {
        if last.is_some_and(|last| needs_blank_line(last, block)) {
            page.line("");
        }
        page.block(block);
        last = Some(block);
    }
    escape_command_lines(&page.out)
}

struct Page {
    out: String,
    style: Style,
}

impl Page {
    fn block(&mut self, block: &Block) {
        match block {
            Block::Headline(answer, context) => self.headline(answer, context),
            Block::Heading(_, text) => self.line(&wrap(&self.style.render_heading(text), self.style.width, "")),
            Block::Paragraph(text) => self.text(text, "", ""),
            Block::Fields(fields) => self.fields(fields),
            Block::List(items) => items.iter().for_each(|item| self.item(item)),
            Block::Table(table) => self.lines(&table::lines(table, self.style)),
            Block::Chart(chart) => self.lines(&draw(chart, self.style.width, self.style.pens())),
            Block::Bar(parts) => self.lines(&bar::lines(parts, self.style)),
            Block::Source(source) => self.source(source),
            Block::Callers(callers) => self.callers(callers),
            Block::Stack(stack) => self.stack(stack),
            Block::Warning(_, text) => self.text(text, "note: ", "      "),
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(line);
        }
    }

    /// Writes `text`, wrapped; its first line starts with `first`, the others with `indent`.
    fn text(&mut self, text: &Text, first: &str, indent: &str) {
        let room = self.style.width.saturating_sub(indent.len());
        let text = &self.shorten_to_fit(text, room);
        let wrapped = wrap(&self.style.render(text), room, indent);
        self.line(&format!("{first}{wrapped}"));
    }

    /// Shortens source locations in `text` to `room` columns each; they may still wrap before the function's name.
    fn shorten_to_fit(&self, text: &Text, room: usize) -> Text {
        let fitted = text.spans.iter().flat_map(|span| match span.path_len {
            0 => vec![span.clone()],
            _ => fit_spans(&Text { spans: vec![span.clone()] }, room, self.style).spans,
        });
        Text { spans: fitted.collect() }
    }

    /// The answer, and its context at the end of the line, or of the next one.
    fn headline(&mut self, answer: &Text, context: &Text) {
        let width = self.style.width.min(HEADLINE_COLUMNS);
        let [answer_width, context_width] = [answer, context].map(|text| self.style.columns(text));
        let gap = width.saturating_sub(answer_width + context_width);
        if gap >= 2 || (context.is_empty() && answer_width <= self.style.width) {
            let shown = self.style.render_heading(answer);
            return self.line(&format!("{shown}{}{}", " ".repeat(gap), self.style.render(context)));
        }
        let room = self.style.width.saturating_sub(2);
        let shown = self.style.render_heading(&self.shorten_to_fit(answer, room));
        self.line(&wrap(&shown, room, "  "));
        if !context.is_empty() {
            let below = self.style.render(&fit_spans(context, room, self.style));
            self.line(&format!("  {below}"));
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        let longest = fields.iter().map(|field| display_width(&self.style.escaped(&field.name))).max().unwrap_or(0);
        let [minimum, maximum] = NAME_COLUMNS;
        let column = longest.clamp(minimum, maximum) + 2;
        let is_narrow = self.style.width < NARROW_PAGE && longest > minimum;
        for field in fields {
            self.field(field, if is_narrow { None } else { Some(column) });
        }
    }

    /// A field whose text starts at `column`, or below its name.
    fn field(&mut self, field: &Field, column: Option<usize>) {
        let name = self.style.escaped(&field.name);
        let indent = " ".repeat(column.unwrap_or(4));
        let pad = indent.len().saturating_sub(display_width(&name)).max(usize::from(!name.is_empty()));
        let mut first = format!("{}{}", self.style.bold(&name), " ".repeat(pad));
        if column.is_none() {
            if !name.is_empty() {
                self.line(&first);
            }
            first.clone_from(&indent);
        }
        for text in &field.texts {
            match text.spans.as_slice() {
                [command] if command.is_code && command.path_len == 0 => self.command(&command.text, &first, &indent),
                _ => self.text(text, &first, &indent),
            }
            first.clone_from(&indent);
        }
    }

    /// Writes text to copy, broken as a shell reads it.
    fn command(&mut self, command: &str, first: &str, indent: &str) {
        const CONTINUED: &str = " \\";
        let room = self.style.width.saturating_sub(indent.len());
        let shown = self.style.escaped(command);
        let fits = display_width(&shown) <= room;
        let room = if fits { room } else { room.saturating_sub(CONTINUED.len()) };
        let wrapped = wrap(&shown, room, indent).replace('\n', &format!("{CONTINUED}\n"));
        self.line(&format!("{first}{wrapped}"));
    }

    fn item(&mut self, item: &Item) {
        let point = format!("  {} ", self.style.pick("•", "-"));
        self.text(&item.text, &point, "    ");
        let room = self.style.width.saturating_sub(6);
        for text in &item.details {
            let shown = self.style.render(&fit_spans(text, room, self.style));
            self.line(&format!("      {shown}"));
        }
    }

    fn source(&mut self, source: &Source) {
        let digits = source.first.saturating_add(source.lines.len() as u64).to_string().len();
        let (bar, arrow) = self.style.pick(("│", "←"), ("|", "<-"));
        for (number, line) in (source.first..).zip(&source.lines) {
            let start = format!("  {number:>digits$} {bar} ");
            let room = self.style.width.saturating_sub(display_width(&start));
            if number == source.marked {
                let note = format!("  {arrow} {}", source.note);
                let line = fit(&line.as_str().into(), room.saturating_sub(display_width(&note)), self.style);
                self.line(&format!("{}{}{note}", self.style.dim(&start), self.style.bold(&line)));
            } else {
                let line = fit(&line.as_str().into(), room, self.style);
                self.line(&self.style.dim(&format!("{start}{line}")));
            }
        }
    }

    /// As many callers as fit on one line.
    fn callers(&mut self, callers: &[Text]) {
        let arrow = self.style.pick(" ← ", " <- ");
        let room = self.style.width.saturating_sub(2);
        let mut line = Text::from("called from ");
        for (index, caller) in callers.iter().take(MAX_CALLERS).enumerate() {
            let longer = if index == 0 { line.clone() } else { line.clone().and(arrow) };
            let longer = longer.and(caller.clone());
            if index > 0 && self.style.columns(&longer) > room {
                break;
            }
            line = longer;
        }
        self.line(&format!("  {}", self.style.dim(&fit(&line, room, self.style))));
    }

    fn stack(&mut self, stack: &Stack) {
        let texts = stack.frames.iter().take(MAX_FRAMES).map(|frame| Text {
            spans: vec![Span { path_len: frame.rfind(':').unwrap_or(0), text: frame.clone(), ..Span::default() }],
        });
        let mut texts: Vec<Text> = texts.collect();
        let [more, folded] = [stack.frames.len().saturating_sub(MAX_FRAMES) as u64, stack.folded_frames];
        let rest = [(more, "more"), (folded, "of interpreter, dispatcher and library calls folded")];
        let rest = rest.iter().filter(|(frames, _)| *frames > 0);
        let rest = rest.map(|(frames, which)| format!("{} {which}", counted(*frames, "frame"))).join(", ");
        texts.extend((!rest.is_empty()).then(|| faint(format!("({rest})"))));
        self.fields(&[Field { name: stack.name.to_owned(), texts }]);
    }
}

/// Whether `before` and `after` are separated by an empty line.
fn needs_blank_line(before: &Block, after: &Block) -> bool {
    use Block::{Bar, Callers, Chart, Fields, Heading, Headline, List, Paragraph, Source, Stack, Table, Warning};
    let is_headline = matches!(before, Headline(..) | Source(_) | Callers(_));
    let follows_text = matches!(before, Paragraph(_) | Warning(..));
    let starts_group = match after {
        Heading(..) | Headline(..) | Bar(_) => return true,
        Source(_) | Callers(_) => return !is_headline,
        Table(_) | Chart(_) => true,
        Fields(_) | Stack(_) => follows_text || is_headline || matches!(before, Bar(_) | Table(_) | List(_)),
        Paragraph(_) | Warning(..) => !follows_text && !is_headline,
        List(_) => !follows_text && !matches!(before, List(_)),
    };
    starts_group && !matches!(before, Heading(..))
}
#[cfg(test)]
mod tests {
    use super::super::block::{Band, Chart, Failures};
    use super::super::markdown::markdown;
    use super::super::table::{Cell, Table};
    use super::super::text::{alarm, code, source_location, strong};
    use super::*;

    const PLAIN: Style = Style { width: 40, unicode: true, colour: false };

    #[test]
    fn blocks_are_laid_out() {
        let mut document = Document::default();
        document.heading(code("a.pickle"));
        document.paragraph("one two three four five six seven eight nine ten");
        document.field("name", "one two three four five six");
        document.fields("", ["more", "and more"]);
        document.heading(alarm("It failed"));
        document.list(["a point"]);
        let rows = [(Cell::from("all"), "12 B"), (Cell::indented(1, "part"), "7 B")];
        document.table(Table::from_rows(rows).text("", |(name, _)| name.clone()).number("bytes", |(_, bytes)| *bytes));
        assert_eq!(
            terminal(&document, PLAIN),
            "a.pickle\none two three four five six seven eight\nnine ten\n\nname    one two three four five six\n        \
             more\n        and more\n\nIt failed\n  • a point\n\n          bytes\n  all      12 B\n    part    7 B\n"
        );
    }

    #[test]
    fn wide_tables_drop_columns_and_shorten_locations() {
        let place = source_location("/a/very/long/way/to/train.py", ":12 step");
        let details = Cell::with_details(place, vec!["some words on it that are long".into()]);
        let table = Table::from_rows([details]).number("count", |_| "1").number("least of all", |_| "2").optional();
        let table = table.text("where", Cell::clone);
        let mut document = Document::default();
        document.table(table);
        let page = terminal(&document, PLAIN);
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
        assert!(page.contains("train.py:12 step") && !page.contains("least"), "{page}");
    }

    #[test]
    fn very_wide_tables_become_lines() {
        let table = Table::from_rows(["as recorded", "expandable_segments:True"]).text("setting", |name| *name);
        let table = table.number("peak reserved", |_| "12.34 GiB").number("smallest capacity", |_| "1,024 MiB");
        let table = Table::from(table.number("share", |_| "100%").number("calls", |_| ""));
        let mut document = Document::default();
        document.table(table.clone());
        assert_eq!(
            terminal(&document, PLAIN),
            "  as recorded\n      peak reserved 12.34 GiB, smallest\n      capacity 1,024 MiB, share 100%\n  \
             expandable_segments:True\n      peak reserved 12.34 GiB, smallest\n      capacity 1,024 MiB, share \
             100%\n"
        );
        let wide = terminal(&document, Style { width: 80, ..PLAIN });
        assert_eq!(wide.lines().count(), 3, "{wide}");
    }

    #[test]
    fn stacks_fit_the_page() {
        let frame = format!("/{}/train.py:12 in step", "deep/".repeat(40));
        for width in [40, 60, 80] {
            let mut document = Document::default();
            document.stack(Stack { name: "stack", frames: vec![frame.clone()], folded_frames: 0 });
            let page = terminal(&document, Style { width, ..PLAIN });
            assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
            assert!(page.contains("train.py:12 in step"), "{page}");
        }
    }

    #[test]
    fn text_from_files_is_escaped() {
        const EVIL: &str = "\u{1b}[2J\r\n# `<b>\u{202e}|";
        let text = Text::from(EVIL).and(code(EVIL)).and(strong(EVIL));
        let mut document = Document::default();
        document.paragraph(text.clone());
        document.field(EVIL, text.clone());
        document.list([text.clone()]);
        document.table(
            Table::from_rows([text.clone()])
                .text("a", |text| Cell::with_details(text.clone(), vec![text.clone()]))
                .note(Some(text.clone())),
        );
        let bands = vec![Band { range: [0, 1], name: EVIL.into() }];
        let failed = Failures { ranges: vec![[0, 1]], labels: vec![(0, EVIL.into())], note: EVIL.into() };
        let bands = vec![("phase", bands)];
        document.chart(Chart { entries: 1, starts: vec![0], bands, failed, ..Chart::default() });
        document.stack(Stack { name: "stack", frames: vec![EVIL.into()], folded_frames: 1 });
        document.warning(EVIL, text);
        let ascii = Style { unicode: false, ..PLAIN };
        for shown in [terminal(&document, PLAIN), terminal(&document, ascii), markdown(&document)] {
            let active = shown.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(active, None);
            assert!(shown.lines().all(|line| !line.starts_with("# `")), "{shown}");
        }
    }
}
