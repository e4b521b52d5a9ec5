//! The names that a file imports.

use super::tokens::{TokenKind, tokens};

/// The names in the import statements of `text`: modules, their parts, and what is imported from them.
pub fn imported_names(text: &str) -> impl Iterator<Item = &str> {
    let (mut starts_statement, mut is_import) = (true, false);
    tokens(text).into_iter().filter_map(move |token| {
        if token.kind != TokenKind::Name {
            let continues = token.kind == TokenKind::Constant || matches!(token.text, "." | "," | "(" | ")" | "*");
            (starts_statement, is_import) = (!continues, is_import && continues);
            return None;
        }
        is_import |= starts_statement && matches!(token.text, "import" | "from");
        starts_statement = false;
        is_import.then_some(token.text)
    })
}
