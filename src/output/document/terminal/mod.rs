//! A document as a terminal page.

mod shorten;
mod style;
mod table;

pub use style::Style;

use super::block::{Block, Document, Field, Item, Stack};
use super::text::{Text, faint};
use super::text_chart::draw;
use super::wrap::{display_width, wrap};
use crate::base::units::{counted, escape_command_lines};
use shorten::shorten;

/// Width of field names; pages narrower than `NARROW_PAGE` put the name above the text.
const NAME_COLUMNS: usize = 16;
const NARROW_PAGE: usize = 60;
/// Maximum number of frames shown of a stack.
const MAX_FRAMES: usize = 8;

/// Renders `document` as a terminal page.
pub fn terminal(document: &Document, style: Style) -> String {
    let mut page = Page { out: String::new(), style, last: None };
    page.blocks(document);
    escape_command_lines(page.out)
}

struct Page<'a> {
    out: String,
    style: Style,
    last: Option<&'a Block>,
}

impl<'a> Page<'a> {
    fn blocks(&mut self, document: &'a Document) {
        for block in &document.blocks {
            if self.last.is_some_and(|last| needs_blank_line(last, block)) {
                self.line("");
            }
            self.block(block);
            self.last = Some(block);
        }
    }

    fn block(&mut self, block: &'a Block) {
        match block {
            Block::Heading(_, text) => self.heading(text),
            Block::Paragraph(text) => self.text(text, "", ""),
            Block::Fields(fields) => fields.iter().for_each(|field| self.field(field)),
            Block::List(items) => items.iter().for_each(|item| self.item(item)),
            Block::Table(table) => self.out.push_str(&table::table(table, self.style)),
            Block::Chart(chart) => {
                for line in draw(chart, self.style.width, self.style.pens()) {
                    self.line(&line);
                }
            }
            Block::Stack(stack) => self.stack(stack),
            Block::Code(lines) => {
                for line in lines {
                    let line = format!("    {}", self.style.escaped(line));
                    self.line(&line);
                }
            }
            Block::Details(heading, inside) => {
                self.heading(heading);
                self.last = Some(block);
                self.blocks(inside);
            }
            Block::Warning(code, text) => {
                let text = Text::from("warning: ").and(text.clone()).and(format!(" [{code}]"));
                self.text(&text, "", "");
            }
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Writes `text`, wrapped; its first line starts with `first`, the others with `indent`.
    fn text(&mut self, text: &Text, first: &str, indent: &str) {
        let room = self.style.width.saturating_sub(indent.len());
        let text = &self.shorten_to_fit(text, room);
        let wrapped = wrap(&self.style.render(text), room, indent);
        self.line(&format!("{first}{wrapped}"));
    }

    /// Shortens source locations in `text` to `room` columns; they may still wrap before the function's name.
    fn shorten_to_fit(&self, text: &Text, room: usize) -> Text {
        let mut text = text.clone();
        for span in text.spans.iter_mut().filter(|span| span.is_location) {
            let mut words = span.text.split(" in ");
            if words.any(|word| display_width(word) > room) {
                span.text = shorten(&span.text, room, self.style.ellipsis());
            }
        }
        text
    }

    fn heading(&mut self, text: &Text) {
        let shown = self.style.render_heading(text);
        let wrapped = wrap(&shown, self.style.width, "");
        self.line(&wrapped);
    }

    /// First column of a field's text.
    fn text_column(&self) -> usize {
        if self.style.width < NARROW_PAGE { 4 } else { NAME_COLUMNS + 2 }
    }

    fn field(&mut self, field: &Field) {
        let name = self.style.escaped(&field.name);
        let is_narrow = self.style.width < NARROW_PAGE;
        let indent = " ".repeat(self.text_column());
        let mut first = format!("  {name:<NAME_COLUMNS$}");
        if is_narrow {
            if !name.is_empty() {
                self.line(&first);
            }
            first.clone_from(&indent);
        } else if name.chars().count() >= NAME_COLUMNS {
            first.push(' ');
        }
        for text in &field.texts {
            self.text(text, &first, &indent);
            first.clone_from(&indent);
        }
    }

    fn item(&mut self, item: &Item) {
        let point = format!("  {} ", self.style.pick("•", "-"));
        self.text(&item.text, &point, "    ");
        let room = self.style.width.saturating_sub(6);
        for text in &item.details {
            let shown = shorten(&self.style.render(text), room, self.style.ellipsis());
            self.line(&format!("      {}", wrap(&shown, room, "      ")));
        }
    }

    fn stack(&mut self, stack: &Stack) {
        let room = self.style.width.saturating_sub(self.text_column());
        let frame = |frame: &String| shorten(&self.style.escaped(frame), room, self.style.ellipsis()).into();
        let mut texts: Vec<Text> = stack.frames.iter().take(MAX_FRAMES).map(frame).collect();
        let mut rest = Vec::new();
        if let Some(more @ 1..) = stack.frames.len().checked_sub(MAX_FRAMES) {
            rest.push(format!("{} more", counted(more as u64, "frame")));
        }
        if stack.folded_frames > 0 {
            let folded = counted(stack.folded_frames, "frame");
            rest.push(format!("{folded} of interpreter, dispatcher and library calls folded"));
        }
        if !rest.is_empty() {
            texts.push(faint(format!("({})", rest.join(", "))));
        }
        self.field(&Field { name: stack.name.to_owned(), texts });
    }
}

/// Whether `before` and `after` are separated by an empty line.
fn needs_blank_line(before: &Block, after: &Block) -> bool {
    use Block::{Chart, Code, Details, Fields, Heading, List, Paragraph, Stack, Table, Warning};
    let follows_text = matches!(before, Paragraph(_) | Warning(..));
    let starts_group = match after {
        Heading(..) | Details(..) | Code(_) => return true,
        Table(_) | Chart(_) => true,
        Fields(_) | Stack(_) => follows_text,
        Paragraph(_) | Warning(..) => !follows_text,
        List(_) => !follows_text && !matches!(before, List(_)),
    };
    matches!(before, Code(_)) || (starts_group && !matches!(before, Heading(..) | Details(..)))
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Band, Chart, ChartRow, RowNote, Shape};
    use super::super::markdown::markdown;
    use super::super::table::{Cell, Table};
    use super::super::text::{alarm, code, strong};
    use super::*;

    const PLAIN: Style = Style { width: 40, unicode: true, colour: false };

    #[test]
    fn blocks_are_laid_out() {
        let mut document = Document::default();
        document.title(code("a.pickle"));
        document.paragraph("one two three four five six seven eight nine ten");
        document.field("name", "one two three four five six");
        document.fields("", ["more", "and more"]);
        document.heading(alarm("It failed"));
        document.list(["a point"]);
        document.table(Table::new(
            &["", "bytes"],
            &[0],
            [vec![Cell::from("all"), "12 B".into()], vec![Cell::Indented(1, "part".into()), "7 B".into()]],
        ));
        document.code(["copy me"]);
        assert_eq!(
            terminal(&document, PLAIN),
            "a.pickle\none two three four five six seven eight\nnine ten\n\n  name\n    one two three four five six\n    \
             more\n    and more\n\nIt failed\n  • a point\n\n          bytes\n  \
             ──────────────\n  all      12 B\n    part    7 B\n\n    copy me\n"
        );
    }

    #[test]
    fn wide_tables_drop_columns_and_shorten_locations() {
        let place = code("/a/very/long/way/to/train.py:12 in step");
        let row =
            vec![Cell::from("1"), "2".into(), Cell::WithDetails(place, vec!["some words on it that are long".into()])];
        let table = Table::new(&["count", "least of all", "where"], &[2], [row]).optional_columns(&[1]);
        let mut document = Document::default();
        document.table(table);
        let page = terminal(&document, PLAIN);
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
        assert!(page.contains("…/way/to/train.py:12 in step") && !page.contains("least"), "{page}");
    }

    #[test]
    fn very_wide_tables_become_lines() {
        let header = ["setting", "peak reserved", "smallest capacity", "share", "calls"];
        let row = |name: &'static str| vec![name, "12.34 GiB", "1,024 MiB", "100%", ""];
        let table = Table::new(&header, &[0], [row("as recorded"), row("expandable_segments:True")]);
        let mut document = Document::default();
        document.table(table.clone());
        assert_eq!(
            terminal(&document, PLAIN),
            "  as recorded\n      peak reserved 12.34 GiB, smallest\n      capacity 1,024 MiB, share 100%\n  \
             expandable_segments:True\n      peak reserved 12.34 GiB, smallest\n      capacity 1,024 MiB, share \
             100%\n"
        );
        let wide = terminal(&document, Style { width: 80, ..PLAIN });
        assert_eq!(wide.lines().count(), 4, "{wide}");
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
        let text = || Text::from(EVIL).and(code(EVIL)).and(strong(EVIL));
        let mut document = Document::default();
        document.title(text());
        document.paragraph(text());
        document.field(EVIL, text());
        document.list([text()]);
        document.table(Table::new(&["a"], &[0], [vec![Cell::WithDetails(text(), vec![text()])]]).caption(text()));
        let row = ChartRow { name: EVIL.into(), shape: Shape::Marks(vec![[0, 1]]), note: RowNote::Text(EVIL.into()) };
        let bands = vec![Band { range: [0, 1], name: EVIL.into() }];
        let bands = Shape::Bands { bands, is_numbered: false };
        let others = [Shape::Labels(vec![(0, EVIL.into())]), bands, Shape::Axis];
        let others = others.map(|shape| ChartRow { name: EVIL.into(), shape, note: RowNote::None });
        let rows = [row].into_iter().chain(others).collect();
        document.chart(Chart { entries: 1, starts: vec![0], rows, ..Chart::default() });
        document.stack(Stack { name: "stack", frames: vec![EVIL.into()], folded_frames: 1 });
        document.code([EVIL]);
        document.details(text(), document.clone());
        document.warning(EVIL, text());
        let ascii = Style { unicode: false, ..PLAIN };
        for shown in [terminal(&document, PLAIN), terminal(&document, ascii), markdown(&document)] {
            let active = shown.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(active, None);
            assert!(shown.lines().all(|line| !line.starts_with("# `")), "{shown}");
        }
    }
}
