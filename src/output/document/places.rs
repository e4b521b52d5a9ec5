//! Directories that the places of a document share are cut once, and said once.

use super::block::{Block, Document};
use super::table::Cell;
use super::text::{Text, code};

/// A directory shorter than this is no burden.
const LEAST: usize = 12;
/// Where installed packages lie.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Where Python's own library lies: no program's directory begins there.
const LIBRARY: &str = "/lib/python3";

impl Document {
    /// Leaves out of all places in the source what those of the program share, and what those of installed
    /// packages share; a sentence before the first section says which directories these are.
    pub fn cut_places(&mut self) {
        let (mut own, mut installed) = (Shared::default(), Shared::default());
        let mut has_relative = false;
        self.places(&mut |place| match directory(place) {
            Some(directory) => match of_packages(directory) {
                Some(packages) => installed.see(packages),
                None if directory.contains(LIBRARY) => {}
                None => own.see(directory),
            },
            None => has_relative |= place.contains(".py:"),
        });
        let cut: Vec<String> = [own, installed].into_iter().filter_map(Shared::found).collect();
        if cut.is_empty() || has_relative {
            return;
        }
        self.places(&mut |place| {
            if let Some(rest) = cut.iter().find_map(|cut| place.strip_prefix(cut.as_str())) {
                *place = rest.to_owned();
            }
        });
        let section = self.blocks.iter().position(is_section).unwrap_or(self.blocks.len());
        // Which environment the packages are from says nothing: where they begin does.
        let shown = cut.iter().map(|cut| match of_packages(cut) {
            Some(_) => cut.trim_end_matches('/').rsplit('/').next().map(|name| format!("{name}/")),
            None => Some(cut.clone()),
        });
        let said =
            shown.flatten().enumerate().fold(Text::from("paths below "), |said, (n, dir)| {
                said.and(if n > 0 { " and " } else { "" }).and(code(dir))
            });
        self.blocks.insert(section, Block::Paragraph(said));
    }

    /// Shows `see` every place.
    fn places(&mut self, see: &mut dyn FnMut(&mut String)) {
        for block in &mut self.blocks {
            match block {
                Block::Heading(_, text) | Block::Paragraph(text) | Block::Warning(_, text) => {
                    of_text(text, see);
                }
                Block::Fields(fields) => {
                    fields
                        .iter_mut()
                        .flat_map(|field| &mut field.texts)
                        .for_each(|t| of_text(t, see));
                }
                Block::List(items) => {
                    for item in items {
                        of_text(&mut item.text, see);
                        item.below.iter_mut().for_each(|text| of_text(text, see));
                    }
                }
                Block::Table(table) => {
                    table.caption.iter_mut().chain(&mut table.note).for_each(|t| of_text(t, see));
                    table.rows.iter_mut().flatten().for_each(|cell| of_cell(cell, see));
                }
                Block::Stack(stack) => stack.frames.iter_mut().for_each(&mut *see),
                Block::Details(heading, inside) => {
                    of_text(heading, see);
                    inside.places(see);
                }
                Block::Code(_) | Block::Chart(_) => {}
            }
        }
    }
}

fn is_section(block: &Block) -> bool {
    matches!(block, Block::Heading(2.., _) | Block::Details(..))
}

fn of_text(text: &mut Text, see: &mut dyn FnMut(&mut String)) {
    let places = text.spans.iter_mut().filter(|span| span.is_place);
    places.for_each(|span| see(&mut span.text));
}

fn of_cell(cell: &mut Cell, see: &mut dyn FnMut(&mut String)) {
    match cell {
        Cell::Text(text) | Cell::Part(_, text) => of_text(text, see),
        Cell::Over(text, below) => {
            of_text(text, see);
            for text in below {
                of_text(text, see);
            }
        }
        Cell::Bar(_) => {}
    }
}

/// The directory of a place with an absolute path, with the separator at its end.
fn directory(place: &str) -> Option<&str> {
    let path = place.rfind(" in ").map_or(place, |at| &place[..at]);
    let is_absolute = path.starts_with(['/', '\\']) || path.get(1..3) == Some(":\\");
    let end = path.rfind(['/', '\\'])?;
    is_absolute.then(|| &path[..=end])
}

/// The part of `directory` in which all packages lie.
fn of_packages(directory: &str) -> Option<&str> {
    let end = PACKAGES.iter().find_map(|name| Some(directory.find(name)? + name.len()))?;
    directory.get(..end)
}

/// What several directories share.
#[derive(Default)]
struct Shared {
    directory: Option<String>,
    places: usize,
}

impl Shared {
    fn see(&mut self, directory: &str) {
        self.places += 1;
        let Some(known) = &mut self.directory else {
            self.directory = Some(directory.to_owned());
            return;
        };
        let alike = known.bytes().zip(directory.bytes()).take_while(|(a, b)| a == b).count();
        if alike < known.len() {
            let shared = known.as_bytes().get(..alike).unwrap_or_default();
            let end = shared.iter().rposition(|byte| matches!(byte, b'/' | b'\\'));
            known.truncate(end.map_or(0, |end| end + 1));
        }
    }

    /// The directory, where it is long enough and shared.
    fn found(self) -> Option<String> {
        self.directory.filter(|directory| self.places > 1 && directory.len() >= LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Stack;
    use super::super::table::Table;
    use super::super::text::place;
    use super::*;

    fn page(places: &[&str]) -> (Document, Vec<String>) {
        let mut document = Document::default();
        document.title(code("/home/user/project/a.pickle"));
        document.heading("who");
        document.table(Table::new(
            &["where"],
            &[0],
            places.iter().map(|at| vec![Cell::Over("".into(), vec![place(*at)])]),
        ));
        let frames = places.iter().map(|place| (*place).to_owned()).collect();
        document.stack(Stack { name: "stack", frames, folded: 0 });
        document.cut_places();
        let mut left = Vec::new();
        document.places(&mut |place| left.push(place.clone()));
        left.truncate(places.len());
        (document, left)
    }

    #[test]
    fn what_all_share_is_said_once() {
        let (document, left) = page(&[
            "/home/user/project/train.py:3 in main",
            "/home/user/project/model/gpt.py:12 in forward",
            "/usr/lib/python3.11/threading.py:9 in run",
            "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py:7 in train",
        ]);
        assert_eq!(
            left,
            [
                "train.py:3 in main",
                "model/gpt.py:12 in forward",
                "/usr/lib/python3.11/threading.py:9 in run",
                "transformers/trainer.py:7 in train",
            ]
        );
        let said = Text::from("paths below ").and("").and(code("/home/user/project/")).and(" and ");
        let said = said.and(code("site-packages/"));
        assert_eq!(document.blocks[1], Block::Paragraph(said));
        assert_eq!(document.blocks[0], Block::Heading(1, code("/home/user/project/a.pickle")));
    }

    #[test]
    fn what_tells_places_apart_stays() {
        for places in [
            &["/app/train.py:3 in main", "/app/model.py:9 in forward"][..],
            &["/home/ann/train.py:3 in main", "/srv/train.py:9 in main"],
            &["/home/user/project/train.py:3 in main", "train.py:3 in main"],
            &["/home/ü/project/a.py:3 in main", "/home/û/project/a.py:3 in main"],
            &[],
        ] {
            assert_eq!(page(places).1, places);
        }
        let windows = page(&[r"C:\Users\ann\work\a.py:3 in f", r"C:\Users\ann\work\b\c.py:3 in f"]);
        assert_eq!(windows.1, ["a.py:3 in f", r"b\c.py:3 in f"]);
    }
}
