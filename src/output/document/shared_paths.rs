//! Cuts the common directory from all source locations of a document and names it once.

use super::block::{Block, Document};
use super::table::Cell;
use super::text::{Text, code};

/// Shorter directories are not worth cutting.
const MIN_SHARED_LEN: usize = 12;
/// Directories of installed packages.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Python's standard library, which says nothing about the program's directory.
const LIBRARY: &str = "/lib/python3";

impl Document {
    /// Cuts two common directories from all source locations: the one of the program's files and the one of installed
    /// packages. A sentence before the first section names them.
    pub fn shorten_locations(&mut self) {
        let (mut program, mut installed) = (SharedDirectory::default(), SharedDirectory::default());
        let mut has_relative = false;
        self.visit_locations(&mut |place| match directory(place) {
            Some(directory) => match packages_prefix(directory) {
                Some(packages) => installed.add(packages),
                None if directory.contains(LIBRARY) => {}
                None => program.add(directory),
            },
            None => has_relative |= place.contains(".py:"),
        });
        let cut: Vec<String> = [program, installed].into_iter().filter_map(SharedDirectory::common_directory).collect();
        if cut.is_empty() || has_relative {
            return;
        }
        self.visit_locations(&mut |place| {
            if let Some(rest) = cut.iter().find_map(|cut| place.strip_prefix(cut.as_str())) {
                *place = rest.to_owned();
            }
        });
        let section = self.blocks.iter().position(is_section).unwrap_or(self.blocks.len());
        // The path of the environment carries no information; its last directory shows where package paths begin.
        let shown = cut.iter().map(|cut| match packages_prefix(cut) {
            Some(_) => cut.trim_end_matches('/').rsplit('/').next().map(|name| format!("{name}/")),
            None => Some(cut.clone()),
        });
        let sentence = shown.flatten().enumerate().fold(Text::from("paths below "), |sentence, (n, dir)| {
            sentence.and(if n > 0 { " and " } else { "" }).and(code(dir))
        });
        self.blocks.insert(section, Block::Paragraph(sentence));
    }

    /// Calls `visit` on every source location.
    fn visit_locations(&mut self, visit: &mut dyn FnMut(&mut String)) {
        for block in &mut self.blocks {
            match block {
                Block::Heading(_, text) | Block::Paragraph(text) | Block::Warning(_, text) => {
                    visit_text(text, visit);
                }
                Block::Fields(fields) => {
                    fields.iter_mut().flat_map(|field| &mut field.texts).for_each(|t| visit_text(t, visit));
                }
                Block::List(items) => {
                    for item in items {
                        visit_text(&mut item.text, visit);
                        item.details.iter_mut().for_each(|text| visit_text(text, visit));
                    }
                }
                Block::Table(table) => {
                    table.caption.iter_mut().chain(&mut table.note).for_each(|t| visit_text(t, visit));
                    table.rows.iter_mut().flatten().for_each(|cell| visit_cell(cell, visit));
                }
                Block::Stack(stack) => stack.frames.iter_mut().for_each(&mut *visit),
                Block::Details(heading, inside) => {
                    visit_text(heading, visit);
                    inside.visit_locations(visit);
                }
                Block::Code(_) | Block::Chart(_) => {}
            }
        }
    }
}

fn is_section(block: &Block) -> bool {
    matches!(block, Block::Heading(2.., _) | Block::Details(..))
}

fn visit_text(text: &mut Text, visit: &mut dyn FnMut(&mut String)) {
    let places = text.spans.iter_mut().filter(|span| span.is_location);
    places.for_each(|span| visit(&mut span.text));
}

fn visit_cell(cell: &mut Cell, visit: &mut dyn FnMut(&mut String)) {
    match cell {
        Cell::Text(text) | Cell::Indented(_, text) => visit_text(text, visit),
        Cell::WithDetails(text, below) => {
            visit_text(text, visit);
            for text in below {
                visit_text(text, visit);
            }
        }
        Cell::Bar(_) => {}
    }
}

/// The directory of a location with an absolute path, including the separator at its end.
fn directory(place: &str) -> Option<&str> {
    let path = place.rfind(" in ").map_or(place, |at| &place[..at]);
    let is_absolute = path.starts_with(['/', '\\']) || path.get(1..3) == Some(":\\");
    let end = path.rfind(['/', '\\'])?;
    is_absolute.then(|| &path[..=end])
}

/// The prefix of `directory` up to and including `site-packages/`.
fn packages_prefix(directory: &str) -> Option<&str> {
    let end = PACKAGES.iter().find_map(|name| Some(directory.find(name)? + name.len()))?;
    directory.get(..end)
}

/// The common prefix of directories.
#[derive(Default)]
struct SharedDirectory {
    directory: Option<String>,
    locations: usize,
}

impl SharedDirectory {
    fn add(&mut self, directory: &str) {
        self.locations += 1;
        let Some(known) = &mut self.directory else {
            self.directory = Some(directory.to_owned());
            return;
        };
        let common = known.bytes().zip(directory.bytes()).take_while(|(a, b)| a == b).count();
        if common < known.len() {
            let end = known.as_bytes()[..common].iter().rposition(|byte| matches!(byte, b'/' | b'\\'));
            known.truncate(end.map_or(0, |end| end + 1));
        }
    }

    /// The directory, if it is long enough and shared by several locations.
    fn common_directory(self) -> Option<String> {
        self.directory.filter(|directory| self.locations > 1 && directory.len() >= MIN_SHARED_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Stack;
    use super::super::table::Table;
    use super::super::text::source_location;
    use super::*;

    fn page(places: &[&str]) -> (Document, Vec<String>) {
        let mut document = Document::default();
        document.title(code("/home/user/project/a.pickle"));
        document.heading("who");
        document.table(Table::new(
            &["where"],
            &[0],
            places.iter().map(|at| vec![Cell::WithDetails("".into(), vec![source_location(*at)])]),
        ));
        let frames = places.iter().map(|place| (*place).to_owned()).collect();
        document.stack(Stack { name: "stack", frames, folded_frames: 0 });
        document.shorten_locations();
        let mut left = Vec::new();
        document.visit_locations(&mut |place| left.push(place.clone()));
        left.truncate(places.len());
        (document, left)
    }

    #[test]
    fn common_directories_are_cut_and_named() {
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
        let sentence = Text::from("paths below ").and("").and(code("/home/user/project/")).and(" and ");
        let sentence = sentence.and(code("site-packages/"));
        assert_eq!(document.blocks[1], Block::Paragraph(sentence));
        assert_eq!(document.blocks[0], Block::Heading(1, code("/home/user/project/a.pickle")));
    }

    #[test]
    fn locations_without_common_directory_stay() {
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
