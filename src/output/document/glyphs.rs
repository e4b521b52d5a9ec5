//! The characters of charts.

/// Width of the labels on the left.
pub(super) const LABEL_COLUMNS: usize = 11;

#[derive(Debug, Clone, Copy)]
pub(super) struct Glyphs {
    pub(super) front: char,
    pub(super) back: char,
    pub(super) axis: char,
    pub(super) mark: char,
    /// Corner, line and tick of the axis.
    pub(super) axis_line: [char; 3],
    /// A cell from its lowest to its highest level.
    pub(super) levels: [char; 8],
}

pub(super) const UNICODE: Glyphs = Glyphs {
    front: '█',
    back: '░',
    axis: '│',
    mark: '▲',
    axis_line: ['└', '─', '┬'],
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
};
