//! The first screen in the order of a page: the headline, the answer, and then what supports it.
//!
//! A terminal ends with the advice, beside the prompt; a page is read from its top.

use crate::output::document::{Block, Document, Field, html};

/// The fields that answer: the reason, what to do, and its text to copy.
const ANSWER: [&str; 3] = ["why", "do", "copy"];
/// The first columns of the tables that follow the holders.
const BLOCKERS: &str = "in the way";
const HOLDERS: &str = "held ";

/// The first screen of `document` as HTML, with short paths and without the advice to make this page. The picture is
/// between the answer and the rest. Notes on the page itself, such as files that were not read, precede the headline: the
/// page's script leaves them.
pub(super) fn take_screen(document: &mut Document, picture: &str) -> String {
    document.shorten_locations();
    let (mut notes, mut headline, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rest, mut blockers) = (Vec::new(), Vec::new());
    for block in std::mem::take(&mut document.blocks) {
        match block {
            Block::Headline(..) => headline.push(block),
            Block::Heading(..) | Block::List(..) => notes.push(block),
            Block::Fields(fields) => {
                let fields = fields.into_iter().filter(|field| !is_own_command(field));
                let (answers, others): (Vec<Field>, Vec<_>) = fields.partition(|field| ANSWER.contains(&&*field.name));
                answer.extend(answers);
                rest.extend(Some(others).filter(|others| !others.is_empty()).map(Block::Fields));
            }
            // Every failure has holders; few have blocks in the way.
            _ if starts_with(&block, BLOCKERS) => blockers.push(block),
            _ => rest.push(block),
        }
    }
    let after_holders = rest.iter().position(|block| starts_with(block, HOLDERS)).map_or(rest.len(), |at| at + 1);
    rest.splice(after_holders..after_holders, blockers);
    let answer = (!answer.is_empty()).then(|| render(vec![Block::Fields(answer)]));
    let answer = answer.map_or_else(String::new, |html| format!("<div class=\"answer\">\n{html}</div>\n"));
    [&*render(notes), &render(headline), &answer, picture, &render(rest)].concat()
}

fn render(blocks: Vec<Block>) -> String {
    html(&Document { blocks, ..Document::default() })
}

/// Whether `block` is a table whose first column starts with `name`.
fn starts_with(block: &Block, name: &str) -> bool {
    matches!(block, Block::Table(table) if table.columns.first().is_some_and(|first| first.heading.starts_with(name)))
}

fn is_own_command(field: &Field) -> bool {
    field.name == "next"
        && field.texts.iter().any(|text| text.spans.iter().any(|span| span.text.starts_with("oomscope report ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::document::Table;

    #[test]
    fn the_answer_precedes_what_supports_it() {
        let mut document = Document::default();
        document.headline("failed", "step 1");
        document.field("pools", "one");
        document.field("why", "capacity");
        for name in ["in the way", "held by", "tried in a replay"] {
            document.table(Table::from_rows([name]).text(name, |name| format!("a row of {name}")));
        }
        document.field("do", "less");
        document.field("next", "oomscope report -o page.html x");
        let page = take_screen(&mut document, "");
        let places: Vec<Option<usize>> =
            ["failed", "capacity", "less", "one", "row of held", "row of in", "row of tried"]
                .map(|text| page.find(text))
                .to_vec();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {page}");
        assert!(!page.contains("oomscope report"));
        assert!(!take_screen(&mut Document::default(), "").contains("answer"));
    }
}
