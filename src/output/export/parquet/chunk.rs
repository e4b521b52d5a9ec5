//! A column chunk: the values of one leaf column in one row group, encoded as pages.

use std::io::{self, Write};
use std::iter::repeat_n;

use flate2::{Compression, GzBuilder};

use super::super::table::Cell;
use super::encodings::{Struct, bits_of_largest, delta_packed, level_runs, packed_flags, packed_indexes};
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
use crate::stacks::frames::FrameReport;

/// Numbers of the format.
pub(super) const TYPE_BOOLEAN: i32 = 0;
pub(super) const TYPE_INT64: i32 = 2;
pub(super) const TYPE_BYTE_ARRAY: i32 = 6;
pub(super) const ENCODING_PLAIN: i32 = 0;
pub(super) const ENCODING_RLE: i32 = 3;
pub(super) const ENCODING_DELTA: i32 = 5;
pub(super) const ENCODING_DICTIONARY: i32 = 8;
const PAGE_DATA: i32 = 0;
const PAGE_DICTIONARY: i32 = 2;

/// The values of a leaf column that a row group collects.
#[derive(Debug)]
pub(super) struct Leaf {
    value_type: i32,
    is_optional: bool,
    values: Values,
    /// Whether each slot has a value; empty for columns that always have one.
    defined: Vec<bool>,
    /// Whether each slot continues the list of the slot before; empty for columns without lists.
    repeated: Vec<bool>,
}

#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Flags(Vec<bool>),
    Texts(Dictionary<String>),
}

/// Values by their index in a dictionary.
#[derive(Debug, Default)]
struct Dictionary<V> {
    indexes: Vec<u32>,
    known: SeededMap<V, u32>,
    /// The distinct values, encoded.
    content: Vec<u8>,
    /// Recent values with their indexes: most come again, and need no hash.
    recent: Box<[Option<(V, u32)>; RECENT]>,
}

const RECENT: usize = 16;

impl Dictionary<String> {
    fn push(&mut self, text: &str) {
        let slot = (text.len() + text.bytes().next_back().map_or(0, usize::from)) % RECENT;
        if let Some((_, index)) = self.recent[slot].as_ref().filter(|(recent, _)| recent == text) {
            self.indexes.push(*index);
            return;
        }
        let next = to_u32(self.known.len());
        let index = *self.known.entry(text.to_owned()).or_insert(next);
        if index == next {
            self.content.extend(to_u32(text.len()).to_le_bytes());
            self.content.extend_from_slice(text.as_bytes());
        }
        self.indexes.push(index);
        self.recent[slot] = Some((text.to_owned(), index));
    }
}

impl Dictionary<i64> {
    /// `None` if values repeat too seldom.
    fn from_integers(values: &[i64]) -> Option<Self> {
        const MIN_REPEATS: usize = 4;
        if !values.is_empty() && values.is_sorted_by(|value, next| value < next) {
            return None; // all differ
        }
        let mut all = Self { indexes: Vec::with_capacity(values.len()), ..Self::default() };
        for run in values.chunk_by(|value, next| value == next) {
            let next = to_u32(all.known.len());
            let index = *all.known.entry(run[0]).or_insert(next);
            if index == next {
                if all.known.len() * MIN_REPEATS > values.len() {
                    return None;
                }
                all.content.extend(run[0].to_le_bytes());
            }
            all.indexes.extend(repeat_n(index, run.len()));
        }
        Some(all)
    }
}

impl<V> Dictionary<V> {
    /// The index of each value.
    fn encoded(&self) -> Vec<u8> {
        packed_indexes(&self.indexes, bits_of_largest(&[self.known.len().saturating_sub(1) as u64]).max(1))
    }
}

/// The pages of a leaf, and what the metadata of the file says of them.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) pages: Vec<u8>,
    /// Where the data page begins in `pages`; a dictionary comes before.
    pub(super) data_page: usize,
    pub(super) uncompressed: usize,
    /// Slots: values and nulls.
    pub(super) slots: usize,
    pub(super) encoding: i32,
}

impl Leaf {
    pub(super) fn new(value_type: i32, is_optional: bool) -> Self {
        let values = match value_type {
            TYPE_BOOLEAN => Values::Flags(Vec::new()),
            TYPE_BYTE_ARRAY => Values::Texts(Dictionary::default()),
            _ => Values::Integers(Vec::new()),
        };
        Self { value_type, is_optional, values, defined: Vec::new(), repeated: Vec::new() }
    }

    /// Adds a cell of a column without lists.
    #[inline]
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        if self.is_optional {
            self.defined.push(!matches!(cell, Cell::Null));
        }
        match (&mut self.values, cell) {
            (Values::Integers(values), Cell::Integer(value)) => values.push(value),
            (Values::Texts(values), Cell::Text(text)) => values.push(text),
            (Values::Flags(values), Cell::Flag(flag)) => values.push(flag),
            (_, cell) => debug_assert!(matches!(cell, Cell::Null), "a column does not hold {cell:?}"),
        }
    }

    /// Adds a part of each of `frames`: the name, the file or the line.
    pub(super) fn push_frames(&mut self, part: usize, frames: &[FrameReport]) {
        if frames.is_empty() {
            self.repeated.push(false);
            self.defined.push(false);
        }
        for (index, frame) in frames.iter().enumerate() {
            self.repeated.push(index > 0);
            self.defined.push(true);
            match &mut self.values {
                Values::Texts(values) => values.push(if part == 0 { &frame.name } else { &frame.file }),
                Values::Integers(values) => values.push(frame.line.into()),
                Values::Flags(_) => {}
            }
        }
    }

    /// The number of list items.
    pub(super) fn items(&self) -> usize {
        self.repeated.len()
    }

    /// Encodes the values, and starts anew.
    pub(super) fn take(&mut self) -> io::Result<Chunk> {
        let leaf = std::mem::replace(self, Self::new(self.value_type, self.is_optional));
        match &leaf.values {
            Values::Integers(values) => {
                let packed = delta_packed(values);
                // Indexes take a bit per value at least.
                match (packed.len() > values.len() / 8).then(|| Dictionary::from_integers(values)).flatten() {
                    // To compress both and keep the shorter one takes much longer and saves nothing.
                    Some(found) if found.content.len() + found.encoded().len() < packed.len() => {
                        leaf.encode_indexes(&found)
                    }
                    _ => leaf.encode(Chunk::default(), values.len(), ENCODING_DELTA, &packed),
                }
            }
            Values::Flags(flags) => leaf.encode(Chunk::default(), flags.len(), ENCODING_PLAIN, &packed_flags(flags)),
            Values::Texts(texts) => leaf.encode_indexes(texts),
        }
    }

    fn encode_indexes<V>(&self, values: &Dictionary<V>) -> io::Result<Chunk> {
        let mut chunk = Chunk::default();
        let header = Struct::new().i32(1, i32_of(values.known.len())).i32(2, ENCODING_PLAIN);
        chunk.push_page(PAGE_DICTIONARY, &values.content, (7, header))?;
        self.encode(chunk, values.indexes.len(), ENCODING_DICTIONARY, &values.encoded())
    }

    /// Completes `chunk`, which may have a dictionary, by the page of `values` encoded values.
    fn encode(&self, mut chunk: Chunk, values: usize, encoding: i32, encoded: &[u8]) -> io::Result<Chunk> {
        // Columns that always have a value have no levels.
        let slots = if self.defined.is_empty() { values } else { self.defined.len() };
        chunk = Chunk { data_page: chunk.pages.len(), slots, encoding, ..chunk };
        let mut body = Vec::new();
        for levels in [&self.repeated, &self.defined].into_iter().filter(|levels| !levels.is_empty()) {
            body.extend(level_runs(levels));
        }
        body.extend_from_slice(encoded);
        let header = Struct::new().i32(1, i32_of(slots)).i32(2, encoding);
        chunk.push_page(PAGE_DATA, &body, (5, header.i32(3, ENCODING_RLE).i32(4, ENCODING_RLE)))?;
        Ok(chunk)
    }
}

impl Chunk {
    /// Compresses and appends a page; its own header is field `field` of the page's.
    fn push_page(&mut self, page_type: i32, body: &[u8], (field, header): (u8, Struct)) -> io::Result<()> {
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
        gzip.write_all(body)?;
        let compressed = gzip.finish()?;
        let page = Struct::new().i32(1, page_type).i32(2, i32_of(body.len())).i32(3, i32_of(compressed.len()));
        let page = page.nested(field, header).end();
        self.uncompressed += page.len() + body.len();
        self.pages.extend(page);
        self.pages.extend(compressed);
        Ok(())
    }
}

/// Row groups are small enough for sizes of 31 bits.
pub(super) fn i32_of(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_repeat_often_have_a_dictionary() {
        for (values, known) in [(&[7, 7, 7, 7][..], Some(1)), (&[7, 7, 7], None), (&[5, 5, 5, 5, 5, 5, 5, 6], Some(2))]
        {
            assert_eq!(Dictionary::from_integers(values).map(|dictionary| dictionary.known.len()), known);
        }
    }
}
