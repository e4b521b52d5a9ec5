//! A table as a Parquet file, version 1, written by hand.
//!
//! The format is a few structs of Thrift and four encodings, and `flate2` compresses: the crate `parquet`, even without
//! arrow, would add 17 crates and 40 s of processor time to a build. Numbers are differences (`DELTA_BINARY_PACKED`),
//! text is a dictionary, pages are gzipped; all three are read by every engine that we know. Each row group is written
//! when it is full, so that memory is bounded by one.

mod chunk;
mod encodings;

use std::io::{self, Write};

use rayon::prelude::*;

use self::chunk::{Chunk, ENCODING_PLAIN, ENCODING_RLE, Leaf, TYPE_BOOLEAN, TYPE_BYTE_ARRAY, TYPE_INT64, i32_of};
use self::encodings::{BINARY, Element, I32, STRUCT, Struct, i32_element, text_element};
use super::table::{Cell, CellOf, Column, Kind, Table, TableSink};

/// Rows of a row group, and slots of a list column.
const GROUP_ROWS: usize = 1 << 17;
/// Text of a row group before the group ends early.
const GROUP_SLOTS: usize = 1 << 20;

const MAGIC: &[u8; 4] = b"PAR1";
const CODEC_GZIP: i32 = 2;
const REPETITION_REQUIRED: i32 = 0;
const REPETITION_OPTIONAL: i32 = 1;
const REPETITION_REPEATED: i32 = 2;
const CONVERTED_UTF8: i32 = 0;
const CONVERTED_LIST: i32 = 3;

/// Names and types of a frame's leaf columns.
const FRAME_LEAVES: [(&str, i32); 3] = [("name", TYPE_BYTE_ARRAY), ("file", TYPE_BYTE_ARRAY), ("line", TYPE_INT64)];

/// Writes a table as a Parquet file.
pub struct ParquetTable<W> {
    out: W,
    offset: u64,
    columns: &'static [Column],
    /// The leaf columns, in order of the schema.
    leaves: Vec<Leaf>,
    rows_in_group: usize,
    rows: u64,
    groups: Vec<Element>,
}

impl<W: Write> ParquetTable<W> {
    /// Writes the start of the file.
    pub fn new(table: Table, mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let leaves = table.columns.iter().flat_map(|column| {
            leaves_of(column).into_iter().map(|(_, value_type)| Leaf::new(value_type, column.is_optional()))
        });
        Ok(Self {
            out,
            offset: MAGIC.len() as u64,
            columns: table.columns,
            leaves: leaves.collect(),
            rows_in_group: 0,
            rows: 0,
            groups: Vec::new(),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes the collected rows as a row group.
    fn end_group(&mut self) -> io::Result<()> {
        let chunks = self.leaves.par_iter_mut().map(Leaf::take).collect::<io::Result<_>>()?;
        self.write_group(chunks)
    }

    fn write_group(&mut self, chunks: Vec<Chunk>) -> io::Result<()> {
        let (mut described, mut total) = (Vec::new(), 0);
        for (chunk, leaf) in chunks.into_iter().zip(self.columns.iter().flat_map(leaves_of)) {
            described.push(describe_chunk(&chunk, leaf, self.offset));
            total += chunk.uncompressed as u64;
            self.write(&chunk.pages)?;
        }
        let group = Struct::new().list(1, STRUCT, &described).i64(2, total).i64(3, self.rows_in_group as u64);
        self.groups.push(group.end());
        self.rows += self.rows_in_group as u64;
        self.rows_in_group = 0;
        Ok(())
    }
}

impl<W: Write> TableSink for ParquetTable<W> {
    fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> io::Result<()> {
        let mut leaves = self.leaves.iter_mut();
        for (column, cell) in self.columns.iter().zip(cells) {
            if column.kind == Kind::Frames {
                let frames = if let Cell::Frames(frames) = cell { frames } else { &[] };
                let parts = leaves.by_ref().take(FRAME_LEAVES.len()).enumerate();
                parts.for_each(|(part, leaf)| leaf.push_frames(part, frames));
            } else if let Some(leaf) = leaves.next() {
                leaf.push(cell);
            }
        }
        self.rows_in_group += 1;
        let is_long = self.leaves.iter().any(|leaf| leaf.items() >= GROUP_SLOTS);
        if self.rows_in_group == GROUP_ROWS || is_long { self.end_group() } else { Ok(()) }
    }

    /// Column by column, on all cores: only the columns at work are in memory.
    fn rows(&mut self, count: usize, columns: &[&CellOf<'_, '_>]) -> io::Result<()> {
        debug_assert_eq!(columns.len(), self.leaves.len(), "a leaf for each column");
        let mut start = 0;
        while start < count {
            let end = count.min(start + GROUP_ROWS - self.rows_in_group);
            self.rows_in_group += end - start;
            let is_full = self.rows_in_group == GROUP_ROWS;
            let chunks = self.leaves.par_iter_mut().zip(columns).filter_map(|(leaf, cell)| {
                (start..end).for_each(|row| leaf.push(cell(row)));
                is_full.then(|| leaf.take())
            });
            let chunks: Vec<Chunk> = chunks.collect::<io::Result<_>>()?;
            if is_full {
                self.write_group(chunks)?;
            }
            start = end;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.rows_in_group > 0 {
            self.end_group()?;
        }
        let metadata = Struct::new().i32(1, 1).list(2, STRUCT, &schema(self.columns)).i64(3, self.rows);
        let metadata = metadata.list(4, STRUCT, &self.groups).text(6, "oomscope").end();
        self.write(&metadata)?;
        self.write(&crate::base::ids::to_u32(metadata.len()).to_le_bytes())?;
        self.write(MAGIC)?;
        self.out.flush()
    }
}

/// The paths and types of a column's leaves.
fn leaves_of(column: &Column) -> Vec<(Vec<&'static str>, i32)> {
    let value_type = match column.kind {
        Kind::Integer | Kind::OptionalInteger => TYPE_INT64,
        Kind::Text | Kind::OptionalText => TYPE_BYTE_ARRAY,
        Kind::Flag => TYPE_BOOLEAN,
        Kind::Frames => {
            let path = [column.name, "list", "element"];
            return FRAME_LEAVES.map(|(name, value_type)| ([&path[..], &[name]].concat(), value_type)).into();
        }
    };
    vec![(vec![column.name], value_type)]
}

fn describe_chunk(chunk: &Chunk, (path, value_type): (Vec<&str>, i32), offset: u64) -> Element {
    let path: Vec<Element> = path.into_iter().map(text_element).collect();
    let encodings = [chunk.encoding, ENCODING_RLE].into_iter().chain((chunk.data_page > 0).then_some(ENCODING_PLAIN));
    let encodings: Vec<Element> = encodings.map(i32_element).collect();
    let metadata = Struct::new().i32(1, value_type).list(2, I32, &encodings).list(3, BINARY, &path);
    let metadata = metadata.i32(4, CODEC_GZIP).i64(5, chunk.slots as u64).i64(6, chunk.uncompressed as u64);
    let metadata = metadata.i64(7, chunk.pages.len() as u64).i64(9, offset + chunk.data_page as u64);
    let metadata = if chunk.data_page > 0 { metadata.i64(11, offset) } else { metadata };
    Struct::new().i64(2, offset).nested(3, metadata).end()
}

/// The schema as a list in which each group is followed by its children.
fn schema(columns: &[Column]) -> Vec<Element> {
    let mut schema = vec![Struct::new().text(4, "schema").i32(5, i32_of(columns.len())).end()];
    for column in columns {
        if column.kind == Kind::Frames {
            schema.push(schema_group(column.name, REPETITION_REQUIRED, 1).i32(6, CONVERTED_LIST).end());
            schema.push(schema_group("list", REPETITION_REPEATED, 1).end());
            schema.push(schema_group("element", REPETITION_REQUIRED, FRAME_LEAVES.len()).end());
        }
        let repetition = if column.is_optional() { REPETITION_OPTIONAL } else { REPETITION_REQUIRED };
        schema.extend(leaves_of(column).into_iter().map(|(path, value_type)| {
            let leaf = Struct::new().i32(1, value_type).i32(3, repetition).text(4, path[path.len() - 1]);
            if value_type == TYPE_BYTE_ARRAY { leaf.i32(6, CONVERTED_UTF8).end() } else { leaf.end() }
        }));
    }
    schema
}

fn schema_group(name: &str, repetition: i32, children: usize) -> Struct {
    Struct::new().i32(3, repetition).text(4, name).i32(5, i32_of(children))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_collected_into_groups() {
        let columns = &[Column { name: "n", kind: Kind::Integer }];
        let mut table = ParquetTable::new(Table { name: "t", columns }, Vec::new()).unwrap();
        let mut counts = Vec::new();
        for row in 1..=GROUP_ROWS + 1 {
            table.row([Cell::Integer(7)]).unwrap();
            if row == 3 || row >= GROUP_ROWS {
                counts.push((table.groups.len(), table.rows_in_group, table.rows));
            }
        }
        assert_eq!(counts, [(0, 3, 0), (1, 0, 1 << 17), (1, 1, 1 << 17)]);
    }
}
