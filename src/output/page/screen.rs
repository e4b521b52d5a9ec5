//! The first screen in the order of a page: the headline, the answer, and then what supports it.
//!
//! A terminal ends with the advice, beside the prompt; a page is read from its top.

use crate::output::document::{Block, Document, Field, Text, html};

/// The fields that answer: the reason, what to do, and its text to copy.
const ANSWER: [&str; 3] = ["why", "do", "copy"];
/// The first columns of the tables that follow the holders.
const BLOCKERS: &str = "in the way";
const HOLDERS: &str = "held ";

/// The parts of a first screen, each as HTML.
pub(super) struct Screen {
    /// About the page itself: files that were not read. The page's script leaves what precedes the headline.
    pub(super) notes: String,
    pub(super) headline: String,
    /// Empty if there is nothing to explain or to do.
    pub(super) answer: String,
    pub(super) rest: String,
}

impl Screen {
    /// The first screen of `document`, with short paths and without the advice to make this page.
    pub(super) fn new(document: &mut Document) -> Self {
        document.shorten_locations();
        let (mut notes, mut headline, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rest, mut blockers) = (Vec::new(), Vec::new());
        for block in std::mem::take(&mut document.blocks) {
            match block {
                Block::Headline(..) => headline.push(block),
                Block::Heading(..) | Block::List(..) => notes.push(block),
                Block::Fields(fields) => {
                    let is_answer = |field: &Field| ANSWER.contains(&&*field.name);
                    let fields = fields.into_iter().filter(|field| !is_own_command(field));
                    let (answers, others): (Vec<Field>, Vec<Field>) = fields.partition(is_answer);
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
        let render = |blocks| html(&Document { blocks, ..Document::default() });
        let fields = |fields| format!("<div class=\"answer\">\n{}</div>\n", render(vec![Block::Fields(fields)]));
        let answer = if answer.is_empty() { String::new() } else { fields(answer) };
        Self { notes: render(notes), headline: render(headline), answer, rest: render(rest) }
    }

    /// The whole screen.
    pub(super) fn html(&self) -> String {
        [&*self.notes, &self.headline, &self.answer, &self.rest].concat()
    }
}

/// Whether `block` is a table whose first column starts with `name`.
fn starts_with(block: &Block, name: &str) -> bool {
    matches!(block, Block::Table(table) if table.columns.first().is_some_and(|first| first.heading.starts_with(name)))
}

fn is_own_command(field: &Field) -> bool {
    let is_report = |text: &Text| text.spans.iter().any(|span| span.text.starts_with("oomscope report "));
    field.name == "next" && field.texts.iter().any(is_report)
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
        let screen = Screen::new(&mut document);
        let page = screen.html();
        let places: Vec<Option<usize>> =
            ["failed", "capacity", "less", "one", "row of held", "row of in", "row of tried"]
                .map(|text| page.find(text))
                .to_vec();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {page}");
        assert!(!page.contains("oomscope report"));
        assert!(!Screen::new(&mut Document::default()).html().contains("answer"));
    }
}
