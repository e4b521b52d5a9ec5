//! A document as Markdown that a comment has room for.

use super::block::{Block, Document, Field, Item};
use super::markdown::markdown;
use super::table::Table;
use super::text::{Text, faint};
use crate::base::units::{count, counted};

/// What a comment on GitHub may hold, in UTF-16 units; other forges allow more.
const COMMENT: usize = 65_536;
/// Rows to try when all of them are too many.
const ROWS: [usize; 10] = [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 3];

/// `document` as Markdown of at most what a comment holds: rows are left out where it has more, then what stands
/// last, and it is said how many.
pub fn comment(document: &Document) -> String {
    within(document, COMMENT)
}

fn within(document: &Document, most: usize) -> String {
    let fits = |text: &String| text.encode_utf16().count() <= most;
    let whole = markdown(document);
    if fits(&whole) {
        return whole;
    }
    let fewer = ROWS.iter().map(|rows| markdown(&shortened(document, *rows)));
    if let Some(text) = fewer.into_iter().find(fits) {
        return text;
    }
    let [.., least] = ROWS;
    let shortened = shortened(document, least);
    let blocks = shortened.blocks.len();
    // As many of the first blocks as there is room for.
    let (mut enough, mut too_many) = (0, blocks);
    while enough + 1 < too_many {
        let middle = usize::midpoint(enough, too_many);
        if fits(&markdown(&first(&shortened, middle))) {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    markdown(&first(&shortened, enough))
}

/// The first `blocks` of `document`.
fn first(document: &Document, blocks: usize) -> Document {
    let mut part = Document { blocks: document.blocks.iter().take(blocks).cloned().collect() };
    let out = document.blocks.len().saturating_sub(blocks);
    part.paragraph(left_out(&counted(out as u64, "further part")));
    part
}

fn left_out(what: &str) -> Text {
    faint(format!("{what} left out: a comment has no room for more"))
}

/// `document` with at most so many `rows` in a table, a list or a stack.
fn shortened(document: &Document, rows: usize) -> Document {
    Document { blocks: document.blocks.iter().map(|block| block_of(block, rows)).collect() }
}

fn block_of(block: &Block, rows: usize) -> Block {
    let more = |all: usize| all.checked_sub(rows).filter(|more| *more > 0);
    match block {
        Block::Table(table) => Block::Table(match more(table.rows.len()) {
            None => table.clone(),
            Some(out) => {
                let said = left_out(&counted(out as u64, "row"));
                let note = match &table.note {
                    Some(note) => note.clone().and("; ").and(said),
                    None => said,
                };
                let rows = table.rows.iter().take(rows).cloned().collect();
                Table { rows, note: Some(note), ..table.clone() }
            }
        }),
        Block::List(items) => Block::List(cut(items, rows, |out| Item::from(left_out(&out)))),
        Block::Fields(fields) => {
            let field = |field: &Field| {
                let texts = cut(&field.texts, rows, |out| left_out(&out));
                Field { name: field.name.clone(), texts }
            };
            Block::Fields(fields.iter().map(field).collect())
        }
        Block::Stack(stack) => {
            let out = more(stack.frames.len()).unwrap_or(0) as u64;
            let mut stack = stack.clone();
            stack.frames.truncate(rows);
            stack.folded += out;
            Block::Stack(stack)
        }
        Block::Code(lines) => Block::Code(cut(lines, rows, |out| format!("... {out} left out"))),
        Block::Details(heading, inside) => Block::Details(heading.clone(), shortened(inside, rows)),
        Block::Heading(..) | Block::Paragraph(_) | Block::Chart(_) | Block::Warning(..) => {
            block.clone()
        }
    }
}

/// The first `rows` of `all`, and what `says` how many more there are.
fn cut<T: Clone>(all: &[T], rows: usize, says: impl Fn(String) -> T) -> Vec<T> {
    let mut kept: Vec<T> = all.iter().take(rows).cloned().collect();
    if let Some(out) = all.len().checked_sub(rows).filter(|out| *out > 0) {
        kept.push(says(format!("{} more", count(out as u64))));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(rows: usize) -> Document {
        let mut document = Document::default();
        document.title("a");
        let cells = (0..rows).map(|row| vec![row.to_string(), "x".repeat(50)]);
        document.table(Table::new(&["row", "text"], &[1], cells));
        document.list((0..rows).map(|row| row.to_string()));
        document
    }

    #[test]
    fn rows_are_left_out_until_it_fits_and_counted() {
        let document = long(500);
        let whole = markdown(&document);
        assert_eq!(within(&document, whole.len()), whole);
        let text = within(&document, 10_000);
        assert!(
            text.len() <= 10_000 && text.contains("| 127 |") && !text.contains("| 128 |"),
            "{text}"
        );
        assert!(text.contains("372 rows left out") && text.contains("372 more left out"), "{text}");
    }

    #[test]
    fn what_stands_last_goes_where_rows_are_not_enough() {
        let mut document = Document::default();
        for part in 0..100 {
            document.paragraph(format!("{part} {}", "y".repeat(100)));
        }
        let text = within(&document, 1000);
        assert!(text.len() <= 1000 && text.starts_with("0 yy"), "{text}");
        assert!(text.contains("91 further parts left out"), "{text}");
    }
}
