//! Reads Rust source as far as the architecture tests need: code without comments and strings, and
//! which modules of the crate it names.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

/// `source` with comments gone and the contents of strings and characters emptied.
pub fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            code.push_str("\"\"");
            string(&rest[1..]) + 1
        } else if let Some(length) = raw_string(rest, code.chars().next_back()) {
            code.push_str("\"\"");
            length
        } else if let Some(length) = character(rest) {
            code.push_str("' '");
            length
        } else {
            code.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of a string's rest, its closing quote included.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && c == '"' {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn raw_string(text: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(is_word) {
        return None;
    }
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let inside = text.len() - body.len() + hashes + 1;
    let end = text[inside..].find(&close).map_or(text.len(), |at| inside + at + close.len());
    Some(end)
}

/// A character literal; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        let escaped = chars.next()?.0 + 1;
        return body[escaped..].find('\'').map(|at| 1 + escaped + at + 1);
    }
    match chars.next()? {
        (at, '\'') => Some(1 + at + 1),
        _ => None,
    }
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `code` has `word` by itself, not as part of a longer one.
pub fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(is_word)
            && !code[at + word.len()..].chars().next().is_some_and(is_word)
    })
}

/// The first names after `crate::` in `code`, of `use crate::{a, b}` each; and after as many `super::`
/// as lead to the crate's root from a module at `depth`.
pub fn modules_named(code: &str, depth: usize) -> Vec<String> {
    let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let flat = flat.replace(" :: ", "::").replace(":: ", "::").replace(" ::", "::");
    let mut names = Vec::new();
    let upward = "super::".repeat(depth.max(1));
    for root in ["crate::", &upward] {
        for (at, _) in flat.match_indices(root) {
            if !flat[..at].chars().next_back().is_some_and(is_word) {
                names.extend(first_names(&flat[at + root.len()..]));
            }
        }
    }
    names
}

fn first_names(path: &str) -> Vec<String> {
    let word = |text: &str| text.trim_start().chars().take_while(|c| is_word(*c)).collect();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' if depth == 0 => {
                names.push(word(&group[start..at]));
                start = at + 1;
            }
            '}' if depth == 0 => {
                names.push(word(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// A path that code names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// From its first name on: `crate`, `super`, `self`, or a module or crate.
    pub path: Vec<String>,
    /// What it is called here, if otherwise than its last name.
    pub renamed: Option<String>,
    /// Whether a `use` declares it.
    pub declares: bool,
    /// Whether that `use` hands it on to others (`pub use`).
    pub hands_on: bool,
}

impl Tree {
    /// What it is called where it is declared.
    pub fn name(&self) -> Option<String> {
        self.renamed.clone().or_else(|| self.path.last().cloned()).filter(|name| name != "*")
    }
}

/// The paths that `code` declares with `use`, and those that it writes out where it needs them.
pub fn paths_of(code: &str) -> Vec<Tree> {
    let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let flat = flat.replace(" :: ", "::").replace(":: ", "::").replace(" ::", "::");
    let mut trees = Vec::new();
    let mut rest = flat.as_str();
    let mut plain = String::new();
    while let Some(at) = find_word(rest, "use") {
        let hands_on = before_is_public(&rest[..at]);
        plain.push_str(&rest[..at]);
        let body = &rest[at + "use".len()..];
        let end = body.find(';').unwrap_or(body.len());
        let mut found = Vec::new();
        unfold(&body[..end], &mut Vec::new(), &mut found);
        trees.extend(found.into_iter().map(|(path, renamed)| Tree {
            path,
            renamed,
            declares: true,
            hands_on,
        }));
        rest = body.get(end + 1..).unwrap_or_default();
    }
    plain.push_str(rest);
    // Who may see a thing (`pub(in crate::a)`) is no use of it.
    let bodies = plain.split("pub(in ").enumerate();
    let plain: String = bodies
        .map(|(at, part)| if at == 0 { part } else { part.split_once(')').map_or("", |it| it.1) })
        .collect();
    for path in plain.split(|c: char| !is_word(c) && c != ':') {
        let names: Vec<String> =
            path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.len() > 1 && !path.starts_with(':') {
            trees.push(Tree { path: names, renamed: None, declares: false, hands_on: false });
        }
    }
    trees
}

fn find_word(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        !text[..*at].chars().next_back().is_some_and(is_word)
            && text[at + word.len()..].starts_with(' ')
    })
}

fn before_is_public(text: &str) -> bool {
    let before = text.trim_end();
    before.ends_with("pub")
        || (before.ends_with(')') && {
            let open = before.rfind('(').unwrap_or(0);
            before[..open].ends_with("pub")
        })
}

/// The paths of a `use` tree, each with what it is renamed to.
fn unfold(tree: &str, prefix: &mut Vec<String>, found: &mut Vec<(Vec<String>, Option<String>)>) {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    unfold(&group[start..at], prefix, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
    } else if let Some((first, rest)) = tree.split_once("::") {
        prefix.push(first.to_owned());
        unfold(rest, prefix, found);
        prefix.pop();
    } else if !tree.is_empty() {
        let (name, renamed) = match tree.split_once(" as ") {
            Some((name, renamed)) => (name, Some(renamed.to_owned())),
            None => (tree, None),
        };
        let mut path = prefix.clone();
        if name != "self" || path.is_empty() {
            path.push(name.to_owned());
        }
        found.push((path, renamed));
    }
}
