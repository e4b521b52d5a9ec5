//! Our own source, for the tests of its architecture: the paths that each file names, read by `syn`, and its
//! code and its comments as text.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, Meta, UseTree, VisRestricted, Visibility};

/// A file of Rust. `code` and `comments` have the lines and columns of the file.
#[derive(Debug)]
pub struct Source {
    /// From the root of the repository, with slashes.
    pub path: String,
    pub text: String,
    /// Without comments; quotes in place of the contents of strings and characters.
    pub code: String,
    /// Comments alone, those of documentation too.
    pub comments: String,
    /// The modules that lead to it: `["replay", "facts"]` for `src/engine/replay/facts/mod.rs`.
    pub module: Vec<String>,
    pub paths: Vec<NamedPath>,
}

/// A path of at least two names, or one that a `use` declares.
#[derive(Debug)]
pub struct NamedPath {
    /// The module that names it, inline modules included.
    pub scope: Vec<String>,
    /// From the root of the crate. A path into another crate appears to be inside `scope`.
    pub absolute: Vec<String>,
    /// The name that a `use` gives it in `scope`.
    pub bound: Option<String>,
    /// Whether that is a `pub use`, with any visibility.
    pub is_reexport: bool,
    /// Whether a module for tests names it.
    pub is_test: bool,
}

impl Source {
    /// Parses `text` as the file at `path`.
    ///
    /// # Panics
    ///
    /// If it is not Rust.
    pub fn parse(path: &str, text: &str) -> Self {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut code: Vec<u8> = text.bytes().map(|b| if b == b'\n' { b } else { b' ' }).collect();
        copy_code(tokens.clone(), text, &mut code);
        let other = code.iter().zip(text.bytes());
        let comments = other.map(|(c, t)| if matches!(c, b' ' | b'\n') { t } else { b' ' }).collect();
        let inside = path.trim_start_matches("src/").trim_start_matches("engine/").trim_end_matches(".rs");
        let names = inside.split('/').filter(|name| !matches!(*name, "mod" | "lib" | "main"));
        let module: Vec<String> = names.map(str::to_owned).collect();
        let is_test = module.iter().any(|name| name == "tests");
        let mut reader = Reader { scope: module.clone(), is_test, paths: Vec::new() };
        reader.visit_file(&syn::parse2(tokens).unwrap_or_else(|error| panic!("{path}: {error}")));
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: String::from_utf8(code).unwrap(),
            comments: String::from_utf8(comments).unwrap(),
            module,
            paths: reader.paths,
        }
    }

    /// Identifiers, keywords and numbers, each with its line.
    pub fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let lines = self.code.lines().zip(1..);
        lines.flat_map(move |(line, number)| {
            line.split(move |c| !is_word(c)).filter(|word| !word.is_empty()).map(move |w| (number, w))
        })
    }
}

/// Every file of both crates, in the order of their paths.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    fn gather(directory: &Path, sources: &mut Vec<Source>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
                let name = inside.to_str().unwrap().replace(std::path::MAIN_SEPARATOR, "/");
                sources.push(Source::parse(&name, &std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut sources = Vec::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// Copies what is code of `text` to its place in `code`. Comments of documentation are tokens, too.
fn copy_code(tokens: TokenStream, text: &str, code: &mut [u8]) {
    for token in tokens {
        let Range { start, end } = token.span().byte_range();
        let written = &text[start..end];
        if written.starts_with("//") || written.starts_with("/*") {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                for delimiter in [start, end - 1] {
                    code[delimiter] = text.as_bytes()[delimiter];
                }
                copy_code(group.stream(), text, code);
            }
            TokenTree::Literal(_) if !written.starts_with(|c: char| c.is_ascii_digit()) => {
                code[start..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b'"');
            }
            _ => code[start..end].copy_from_slice(written.as_bytes()),
        }
    }
}

struct Reader {
    scope: Vec<String>,
    is_test: bool,
    paths: Vec<NamedPath>,
}

impl Reader {
    fn add(&mut self, names: &[String], bound: Option<String>, is_reexport: bool) {
        if names.len() < 2 && bound.is_none() {
            return;
        }
        let mut absolute = self.scope.clone();
        let mut rest = names;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => absolute.clear(),
                "super" => drop(absolute.pop()),
                "self" => {}
                _ => break,
            }
            rest = others;
        }
        absolute.extend_from_slice(rest);
        let (scope, is_test) = (self.scope.clone(), self.is_test);
        self.paths.push(NamedPath { scope, absolute, bound, is_reexport, is_test });
    }

    fn add_used(&mut self, tree: &UseTree, prefix: &[String], is_reexport: bool) {
        let (name, bound) = match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                return self.add_used(&path.tree, &prefix, is_reexport);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_used(tree, prefix, is_reexport));
            }
            UseTree::Name(name) => (name.ident.to_string(), None),
            UseTree::Rename(name) => (name.ident.to_string(), Some(name.rename.to_string())),
            _ => return self.add(&[prefix, &["*".to_owned()]].concat(), None, is_reexport),
        };
        let names = if name == "self" { prefix.to_vec() } else { [prefix, &[name]].concat() };
        let bound = bound.or_else(|| names.last().cloned());
        self.add(&names, bound, is_reexport);
    }

    /// The paths in a macro's arguments or an attribute's.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut names, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(&std::mem::take(&mut names), None, false);
                    }
                    names.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.add(&std::mem::take(&mut names), None, false);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&names, None, false);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let before = self.is_test;
        self.is_test |= item.attrs.iter().any(|attribute| match &attribute.meta {
            Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
            _ => false,
        });
        self.scope.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.scope.pop();
        self.is_test = before;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_used(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.add(&names, None, false);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        visit::visit_macro(self, called);
        self.add_tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }

    /// `pub(in crate::a)` says who may name an item, and names nothing.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}
