//! The modules that a file imports.

use std::collections::BTreeSet;

use super::tokens::{Token, TokenKind, tokens};

/// The modules that the import statements of `text` may name, as paths: `a/b` and `a/b/c` for `from a.b import c`, which
/// may be a module or a member of one. Leading dots are left out.
pub fn imported_modules(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for statement in tokens(text).split(ends_statement) {
        match statement.iter().position(|token| token.text == "import") {
            Some(0) => modules.extend(items(&statement[1..])),
            Some(at) if statement[0].text == "from" => {
                let module = items(&statement[1..at]).next().unwrap_or_default();
                let prefix = if module.is_empty() { String::new() } else { format!("{module}/") };
                modules.extend(items(&statement[at + 1..]).map(|item| format!("{prefix}{item}")).chain([module]));
            }
            _ => {}
        }
    }
    modules.remove("");
    modules
}

fn ends_statement(token: &Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent) || matches!(token.text, ";" | ":")
}

/// The dotted names between commas as paths, without what follows `as`; none for `*`.
fn items<'t>(tokens: &'t [Token<'_>]) -> impl Iterator<Item = String> + 't {
    let items = tokens.split(|token| token.text == ",").map(|item| {
        let names = item.iter().take_while(|token| token.text != "as");
        let names: Vec<&str> = names.filter(|token| token.kind == TokenKind::Name).map(|token| token.text).collect();
        names.join("/")
    });
    items.filter(|item| !item.is_empty())
}
