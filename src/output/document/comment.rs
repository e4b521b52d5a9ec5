//! Markdown that fits into a comment of a code host.

use super::block::Document;
use super::markdown::markdown;
use super::text::faint;
use crate::base::units::counted;

/// GitHub's limit for a comment, in UTF-16 units. Other code hosts allow more.
const MAX_COMMENT_LEN: usize = 65_536;

/// Renders `document` as Markdown that fits into a comment. Omits the last blocks if it must, and says
/// how many.
pub fn markdown_comment(document: &Document) -> String {
    markdown_within(document, MAX_COMMENT_LEN)
}

fn markdown_within(document: &Document, max_len: usize) -> String {
    let fits = |text: &String| text.encode_utf16().count() <= max_len;
    let full = markdown(document);
    if fits(&full) {
        return full;
    }
    let mut shorter = (0..document.blocks.len()).rev().map(|blocks| markdown(&first_blocks(document, blocks)));
    shorter.find(fits).unwrap_or_else(|| markdown(&first_blocks(document, 0)))
}

/// The first `blocks` blocks of `document`, and a note on the others.
fn first_blocks(document: &Document, blocks: usize) -> Document {
    let mut start = Document { blocks: document.blocks.iter().take(blocks).cloned().collect(), sections: Vec::new() };
    let omitted = document.blocks.len().saturating_sub(blocks);
    let omitted = counted(omitted as u64, "further part");
    start.paragraph(faint(format!("{omitted} left out to fit into a comment")));
    start
}

#[cfg(test)]
mod tests {
    use super::*;

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
