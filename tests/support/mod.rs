//! What tests share.

pub mod browser;
pub mod cases;
pub mod describe;
pub mod fixtures;
pub mod garbage;
pub mod generator;
pub mod json_schema;
pub mod late;
pub mod made;
pub mod mutate;
pub mod page;
pub mod peak_heap;
pub mod pickle_bytes;
pub mod pickle_tree;
pub mod plain_json;
pub mod program;
pub mod python;
pub mod recorded;
pub mod reference;
pub mod rust_source;
pub mod sample;
pub mod schema;
pub mod viewer;
pub mod window;
