//! A document as a page on a terminal.

mod shorten;
mod style;
mod table;

pub use style::Style;

use super::block::{Block, Document, Field, Item, Stack};
use super::drawing::draw;
use super::text::{Text, faint};
use super::wrap::{width, wrap};
use crate::base::units::{counted, escape_command_lines};
use shorten::shorten;

/// Columns of the names on the left, and of a page that has no room for them beside the text.
const NAMES: usize = 16;
const NARROW: usize = 60;
/// Frames of a stack that are shown.
const FRAMES: usize = 8;

/// `document` as a page.
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
            if self.last.is_some_and(|last| is_parted(last, block)) {
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
                    let line = format!("    {}", self.style.raw(line));
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

    /// `text` behind `first`, its further lines behind `indent`.
    fn text(&mut self, text: &Text, first: &str, indent: &str) {
        let room = self.style.width.saturating_sub(indent.len());
        let text = &self.fitted(text, room);
        let wrapped = wrap(&self.style.show(text), room, indent);
        self.line(&format!("{first}{wrapped}"));
    }

    /// `text`, its places no wider than `room`: they may be wrapped before the function's name.
    fn fitted(&self, text: &Text, room: usize) -> Text {
        let mut text = text.clone();
        for span in text.spans.iter_mut().filter(|span| span.is_place) {
            let mut words = span.text.split(" in ");
            if words.any(|word| width(word) > room) {
                span.text = shorten(&span.text, room, self.style.dots());
            }
        }
        text
    }

    fn heading(&mut self, text: &Text) {
        let shown = self.style.show_heading(text);
        let wrapped = wrap(&shown, self.style.width, "");
        self.line(&wrapped);
    }

    /// The column where the text of a field begins.
    fn beside_names(&self) -> usize {
        if self.style.width < NARROW { 4 } else { NAMES + 2 }
    }

    fn field(&mut self, field: &Field) {
        let name = self.style.raw(&field.name);
        let is_narrow = self.style.width < NARROW;
        let indent = " ".repeat(self.beside_names());
        let mut first = format!("  {name:<NAMES$}");
        if is_narrow {
            if !name.is_empty() {
                self.line(&first);
            }
            first.clone_from(&indent);
        } else if name.chars().count() >= NAMES {
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
        for text in &item.below {
            let shown = shorten(&self.style.show(text), room, self.style.dots());
            self.line(&format!("      {}", wrap(&shown, room, "      ")));
        }
    }

    fn stack(&mut self, stack: &Stack) {
        let room = self.style.width.saturating_sub(self.beside_names());
        let frame =
            |frame: &String| shorten(&self.style.raw(frame), room, self.style.dots()).into();
        let mut texts: Vec<Text> = stack.frames.iter().take(FRAMES).map(frame).collect();
        let mut rest = Vec::new();
        if let Some(more @ 1..) = stack.frames.len().checked_sub(FRAMES) {
            rest.push(format!("{} more", counted(more as u64, "frame")));
        }
        if stack.folded > 0 {
            let folded = counted(stack.folded, "frame");
            rest.push(format!("{folded} of interpreter, dispatcher and library calls folded"));
        }
        if !rest.is_empty() {
            texts.push(faint(format!("({})", rest.join(", "))));
        }
        self.field(&Field { name: stack.name.to_owned(), texts });
    }
}

/// Whether an empty line stands between `before` and `after`.
fn is_parted(before: &Block, after: &Block) -> bool {
    use Block::{Chart, Code, Details, Fields, Heading, List, Paragraph, Stack, Table, Warning};
    let follows_text = matches!(before, Paragraph(_) | Warning(..));
    let begins = match after {
        Heading(..) | Details(..) | Code(_) => return true,
        Table(_) | Chart(_) => true,
        Fields(_) | Stack(_) => follows_text,
        Paragraph(_) | Warning(..) => !follows_text,
        List(_) => !follows_text && !matches!(before, List(_)),
    };
    matches!(before, Code(_)) || (begins && !matches!(before, Heading(..) | Details(..)))
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Chart, RowNote, ChartRow, Shape, Band};
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
            [
                vec![Cell::from("all"), "12 B".into()],
                vec![Cell::Part(1, "part".into()), "7 B".into()],
            ],
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
    fn what_does_not_fit_is_left_out_shortened_or_wrapped() {
        let place = code("/a/very/long/way/to/train.py:12 in step");
        let row = vec![
            Cell::from("1"),
            "2".into(),
            Cell::Over(place, vec!["some words on it that are long".into()]),
        ];
        let table = Table::new(&["count", "least of all", "where"], &[2], [row]).least(&[1]);
        let mut document = Document::default();
        document.table(table);
        let page = terminal(&document, PLAIN);
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
        assert!(page.contains("…/way/to/train.py:12 in step") && !page.contains("least"), "{page}");
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_few_lines_for_each_row() {
        let header = ["setting", "peak reserved", "smallest capacity", "share", "calls"];
        let row = |name: &'static str| vec![name, "12.34 GiB", "1,024 MiB", "100%", ""];
        let table =
            Table::new(&header, &[0], [row("as recorded"), row("expandable_segments:True")]);
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
    fn a_stack_keeps_to_the_page() {
        let frame = format!("/{}/train.py:12 in step", "deep/".repeat(40));
        for width in [40, 60, 80] {
            let mut document = Document::default();
            document.stack(Stack { name: "stack", frames: vec![frame.clone()], folded: 0 });
            let page = terminal(&document, Style { width, ..PLAIN });
            assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
            assert!(page.contains("train.py:12 in step"), "{page}");
        }
    }

    #[test]
    fn nothing_from_a_file_acts() {
        const EVIL: &str = "\u{1b}[2J\r\n# `<b>\u{202e}|";
        let text = || Text::from(EVIL).and(code(EVIL)).and(strong(EVIL));
        let mut document = Document::default();
        document.title(text());
        document.paragraph(text());
        document.field(EVIL, text());
        document.list([text()]);
        document.table(
            Table::new(&["a"], &[0], [vec![Cell::Over(text(), vec![text()])]]).caption(text()),
        );
        let row = ChartRow {
            name: EVIL.into(),
            shape: Shape::Marks(vec![[0, 1]]),
            note: RowNote::Text(EVIL.into()),
        };
        let stretches = vec![Band { range: [0, 1], name: EVIL.into() }];
        let stretches = Shape::Bands { stretches, is_numbered: false };
        let others = [Shape::Labels(vec![(0, EVIL.into())]), stretches, Shape::Axis];
        let others = others.map(|shape| ChartRow { name: EVIL.into(), shape, note: RowNote::None });
        let rows = [row].into_iter().chain(others).collect();
        document.chart(Chart { entries: 1, starts: vec![0], rows, ..Chart::default() });
        document.stack(Stack { name: "stack", frames: vec![EVIL.into()], folded: 1 });
        document.code([EVIL]);
        document.details(text(), document.clone());
        document.warning(EVIL, text());
        let ascii = Style { unicode: false, ..PLAIN };
        for shown in [terminal(&document, PLAIN), terminal(&document, ascii), markdown(&document)] {
            let acts = shown.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(acts, None);
            assert!(shown.lines().all(|line| !line.starts_with("# `")), "{shown}");
        }
    }
}
