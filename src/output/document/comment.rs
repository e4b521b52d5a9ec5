//! Markdown that fits into a comment of a code host.

use super::block::{Block, Document, Field, Item};
use super::markdown::markdown;
use super::table::Table;
use super::text::{Text, faint};
use crate::base::units::{count, counted};

/// GitHub's limit for a comment, in UTF-16 units. Other code hosts allow more.
const MAX_COMMENT_LEN: usize = 65_536;
/// Row limits to try, in this order.
const ROW_LIMITS: [usize; 10] = [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 3];

/// Renders `document` as Markdown that fits into a comment. Omits rows first, then the last blocks, and says how many.
pub fn markdown_comment(document: &Document) -> String {
    markdown_within(document, MAX_COMMENT_LEN)
}

fn markdown_within(document: &Document, max_len: usize) -> String {
    let fits = |text: &String| text.encode_utf16().count() <= max_len;
    let full = markdown(document);
    if fits(&full) {
        return full;
    }
    let fewer = ROW_LIMITS.iter().map(|rows| markdown(&limit_rows(document, *rows)));
    if let Some(text) = fewer.into_iter().find(fits) {
        return text;
    }
    let [.., fewest_rows] = ROW_LIMITS;
    let shortened = limit_rows(document, fewest_rows);
    let blocks = shortened.blocks.len();
    // Binary search for the largest number of leading blocks that fits.
    let (mut fitting, mut too_many) = (0, blocks);
    while fitting + 1 < too_many {
        let middle = usize::midpoint(fitting, too_many);
        if fits(&markdown(&first_blocks(&shortened, middle))) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    markdown(&first_blocks(&shortened, fitting))
}

/// The first `blocks` blocks of `document`, and a note on the others.
fn first_blocks(document: &Document, blocks: usize) -> Document {
    let mut start = Document { blocks: document.blocks.iter().take(blocks).cloned().collect(), sections: Vec::new() };
    let omitted = document.blocks.len().saturating_sub(blocks);
    start.paragraph(omission_note(&counted(omitted as u64, "further part")));
    start
}

fn omission_note(omitted: &str) -> Text {
    faint(format!("{omitted} left out to fit into a comment"))
}

/// `document` with at most `rows` rows in each table, list and stack.
fn limit_rows(document: &Document, rows: usize) -> Document {
    let blocks = document.blocks.iter().map(|block| limit_block_rows(block, rows)).collect();
    Document { blocks, sections: Vec::new() }
}

fn limit_block_rows(block: &Block, rows: usize) -> Block {
    let more = |all: usize| all.checked_sub(rows).filter(|more| *more > 0);
    match block {
        Block::Table(table) => Block::Table(match more(table.rows.len()) {
            None => table.clone(),
            Some(out) => {
                let omission = omission_note(&counted(out as u64, "row"));
                let note = match &table.note {
                    Some(note) => note.clone().and("; ").and(omission),
                    None => omission,
                };
                let rows = table.rows.iter().take(rows).cloned().collect();
                Table { rows, note: Some(note), ..table.clone() }
            }
        }),
        Block::List(items) => Block::List(keep_first(items, rows, |out| Item::from(omission_note(&out)))),
        Block::Fields(fields) => {
            let field = |field: &Field| {
                let texts = keep_first(&field.texts, rows, |out| omission_note(&out));
                Field { name: field.name.clone(), texts }
            };
            Block::Fields(fields.iter().map(field).collect())
        }
        Block::Stack(stack) => {
            let out = stack.frames.len().saturating_sub(rows) as u64;
            let mut stack = stack.clone();
            stack.frames.truncate(rows);
            stack.folded_frames += out;
            Block::Stack(stack)
        }
        Block::Code(lines) => Block::Code(keep_first(lines, rows, |out| format!("... {out} left out"))),
        Block::Details(heading, inside) => Block::Details(heading.clone(), limit_rows(inside, rows)),
        Block::Headline(..)
        | Block::Heading(..)
        | Block::Paragraph(_)
        | Block::Chart(_)
        | Block::Bar(_)
        | Block::Source(_)
        | Block::Callers(_)
        | Block::Warning(..) => block.clone(),
    }
}

/// The first `rows` of `all`, then one that describes how many were omitted.
fn keep_first<T: Clone>(all: &[T], rows: usize, describe_rest: impl Fn(String) -> T) -> Vec<T> {
    let mut kept: Vec<T> = all.iter().take(rows).cloned().collect();
    if let Some(out) = all.len().checked_sub(rows).filter(|out| *out > 0) {
        kept.push(describe_rest(format!("{} more", count(out as u64))));
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
    fn omits_rows_until_it_fits() {
        let document = long(500);
        let complete = markdown(&document);
        assert_eq!(markdown_within(&document, complete.len()), complete);
        let text = markdown_within(&document, 10_000);
        assert!(text.len() <= 10_000 && text.contains("| 127 |") && !text.contains("| 128 |"), "{text}");
        assert!(text.contains("372 rows left out") && text.contains("372 more left out"), "{text}");
    }

    #[test]
    fn omits_last_blocks_if_fewer_rows_do_not_suffice() {
        let mut document = Document::default();
        for part in 0..100 {
            document.paragraph(format!("{part} {}", "y".repeat(100)));
        }
        let text = markdown_within(&document, 1000);
        assert!(text.len() <= 1000 && text.starts_with("0 yy"), "{text}");
        assert!(text.contains("91 further parts left out"), "{text}");
    }
}
