//! The characters that charts are drawn with.

/// Columns for the labels on the left.
pub(super) const LABEL_COLUMNS: usize = 11;

/// The characters to draw with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glyphs {
    pub(super) front: char,
    pub(super) back: char,
    pub(super) axis: char,
    pub(super) mark: char,
    pub(super) range: char,
    /// Where the axis begins, a part of it, a mark on it.
    pub(super) ground: [char; 3],
    pub(super) levels: [char; 8],
    /// Paints a part of the layer of this number, if the reader sees colours; the last are alike.
    pub(super) paint: Option<fn(usize, &str) -> String>,
}

pub(super) const UNICODE: Glyphs = Glyphs {
    front: '█',
    back: '░',
    axis: '│',
    mark: '▲',
    range: '▬',
    ground: ['└', '─', '┬'],
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    paint: None,
};
