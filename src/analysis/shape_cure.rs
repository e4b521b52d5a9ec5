//! The change of the program that the shapes at the failing line suggest: a tensor of all pairs that nobody needs.

use super::local_tensors::{LocalTensorReport, LocalTensors, request_bytes};

/// A change of the program, with the tensors of the failing function that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeCure {
    /// Give two tensors the same shape: of (N, 1) and (N) an operator makes (N, N).
    SameShape([LocalTensorReport; 2]),
    /// Use fused attention instead of a matrix of scores; query, key and value.
    FusedAttention([String; 3]),
    /// Compute distances without the differences of all pairs.
    Distances([LocalTensorReport; 2]),
    /// Multiply rows by a vector instead of by its diagonal matrix.
    Diagonal(String),
    /// Compute all pairs of rows of two tensors in parts.
    Parts([LocalTensorReport; 2]),
}

/// Tensors with fewer rows have no large table of pairs.
const MIN_ROWS: u64 = 1024;

/// The change if the request of `bytes` is for such a tensor; `line` is the text of the failing line, if it is known.
pub(super) fn shape_cure(locals: &LocalTensors, bytes: u64, line: Option<&str>) -> Option<ShapeCure> {
    let tensors = locals.tensors.as_slice();
    same_shape(tensors, bytes)
        .or_else(|| fused_attention(tensors, bytes))
        .or_else(|| diagonal(tensors, bytes, line?))
        .or_else(|| pairs_of_rows(tensors, bytes, line))
}

/// How often the variable `name` occurs in `line`.
fn occurrences(line: &str, name: &str) -> usize {
    let words = line.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.filter(|word| *word == name).count()
}

/// `diag` of (N), and a request for (N, N).
fn diagonal(tensors: &[LocalTensorReport], bytes: u64, line: &str) -> Option<ShapeCure> {
    let is_it = |tensor: &&LocalTensorReport| match tensor.shape.as_slice() {
        [rows] => has_size(&[*rows, *rows], tensor, bytes) && occurrences(line, &tensor.name) > 0,
        _ => false,
    };
    let found = tensors.iter().find(is_it).filter(|_| occurrences(line, "diag") > 0)?;
    Some(ShapeCure::Diagonal(found.name.clone()))
}

fn same_shape(tensors: &[LocalTensorReport], bytes: u64) -> Option<ShapeCure> {
    pairs(tensors).find_map(|(column, row)| match (column.shape.as_slice(), row.shape.as_slice()) {
        ([rows, 1], [same]) if rows == same && *rows >= MIN_ROWS && has_size(&[*rows, *rows], column, bytes) => {
            Some(ShapeCure::SameShape([column.clone(), row.clone()]))
        }
        _ => None,
    })
}

/// Three tensors (.., N, D), and a request for (.., N, N).
fn fused_attention(tensors: &[LocalTensorReport], bytes: u64) -> Option<ShapeCure> {
    tensors.iter().find_map(|query| {
        let (batch, [rows, width]) = query.shape.split_last_chunk::<2>()?;
        let scores: Vec<u64> = batch.iter().chain([rows, rows]).copied().collect();
        let mut same = tensors.iter().filter(|tensor| tensor.shape == query.shape).map(|tensor| tensor.name.clone());
        let names = [same.next()?, same.next()?, same.next()?];
        let is_attention = !batch.is_empty() && width < rows && same.next().is_none();
        (is_attention && has_size(&scores, query, bytes)).then_some(ShapeCure::FusedAttention(names))
    })
}

/// Tensors (.., N, D) and (.., M, D), and a request for (.., N, M) or (.., N, M, D): both are at the failing line, or a
/// variable has that shape.
fn pairs_of_rows(tensors: &[LocalTensorReport], bytes: u64, line: Option<&str>) -> Option<ShapeCure> {
    let times = |tensor: &LocalTensorReport| line.map_or(0, |line| occurrences(line, &tensor.name));
    let with_others = pairs(tensors).map(|pair| (pair, times(pair.0).min(times(pair.1)) > 0));
    let with_themselves = tensors.iter().map(|tensor| ((tensor, tensor), times(tensor) > 1));
    with_others.chain(with_themselves).find_map(|((left, right), at_line)| {
        let (batch, [rows, width]) = left.shape.split_last_chunk::<2>()?;
        let (same_batch, [columns, same_width]) = right.shape.split_last_chunk::<2>()?;
        let is_product = batch == same_batch && width == same_width && width < rows.min(columns);
        if !is_product || *rows.min(columns) < MIN_ROWS {
            return None;
        }
        let table: Vec<u64> = batch.iter().chain([rows, columns]).copied().collect();
        let differences: Vec<u64> = table.iter().chain([width]).copied().collect();
        let is_shape = |shape: &[u64]| {
            has_size(shape, left, bytes) && (at_line || tensors.iter().any(|tensor| tensor.shape == shape))
        };
        let both = || [left.clone(), right.clone()];
        match () {
            () if is_shape(&table) => Some(ShapeCure::Parts(both())),
            () if is_shape(&differences) => Some(ShapeCure::Distances(both())),
            () => None,
        }
    })
}

/// Each ordered pair of two tensors.
fn pairs(tensors: &[LocalTensorReport]) -> impl Iterator<Item = (&LocalTensorReport, &LocalTensorReport)> {
    let with_others = move |(index, one)| {
        let others = tensors.iter().enumerate().filter(move |(other, _)| *other != index);
        others.map(move |(_, other)| (one, other))
    };
    tensors.iter().enumerate().flat_map(with_others)
}

/// Whether a tensor of `shape` and the type of `like` is a request of `bytes`.
fn has_size(shape: &[u64], like: &LocalTensorReport, bytes: u64) -> bool {
    request_bytes(shape, &like.dtype) == Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::frames::FrameReport;

    fn cure(tensors: &[(&str, &[u64])], bytes: u64, line: &str) -> Option<ShapeCure> {
        let tensor = |(name, shape): &(&str, &[u64])| LocalTensorReport {
            name: (*name).to_owned(),
            dtype: "float32".to_owned(),
            shape: shape.to_vec(),
        };
        let tensors = tensors.iter().map(tensor).collect();
        let function = FrameReport { file: "loss.py".to_owned(), line: 3, name: "huber".to_owned() };
        shape_cure(&LocalTensors { function, tensors, request: None }, bytes, Some(line))
    }

    #[test]
    fn a_column_and_a_row_make_a_matrix() {
        let tensors: [(&str, &[u64]); 2] = [("target", &[20_000]), ("prediction", &[20_000, 1])];
        let Some(ShapeCure::SameShape([column, row])) = cure(&tensors, 1_600_000_000, "") else { panic!() };
        assert_eq!((column.name, row.name), ("prediction".into(), "target".into()));
        assert_eq!(cure(&tensors, 80_000, ""), None);
    }

    #[test]
    fn scores_have_a_row_and_a_column_for_each_position() {
        let shape: &[u64] = &[4, 6, 2048, 64];
        let tensors = [("x", [4_u64, 2048, 384].as_slice()), ("q", shape), ("k", shape), ("v", shape)];
        let names = ["q".into(), "k".into(), "v".into()];
        assert_eq!(cure(&tensors, 4 * 6 * 2048 * 2048 * 4, ""), Some(ShapeCure::FusedAttention(names)));
        assert_eq!(cure(&tensors[..3], 4 * 6 * 2048 * 2048 * 4, ""), None);
    }

    #[test]
    fn a_table_of_distances_has_all_pairs() {
        let tensors: [(&str, &[u64]); 2] = [("queries", &[20_480, 128]), ("references", &[40_960, 128])];
        let line = "d = torch.cdist(queries, references)";
        assert!(matches!(cure(&tensors, 20_480 * 40_960 * 4, line), Some(ShapeCure::Parts(_))));
        assert_eq!(cure(&tensors, 20_480 * 40_960 * 4, "d = scores(queries)"), None);
        assert!(matches!(cure(&tensors[..1], 20_480 * 20_480 * 4, "queries @ queries.T"), Some(ShapeCure::Parts(_))));
        assert_eq!(cure(&tensors[..1], 20_480 * 20_480 * 4, "queries.T @ torch.diag(weights)"), None);
        assert_eq!(cure(&tensors[..1], 20_480 * 128 * 4, "queries * queries"), None);
        let points: [(&str, &[u64]); 2] = [("a", &[20_480, 3]), ("b", &[10_240, 3])];
        let line = "d = (a[:, None] - b[None]).norm(dim=-1)";
        assert!(matches!(cure(&points, 20_480 * 10_240 * 3 * 4, line), Some(ShapeCure::Distances(_))));
    }

    #[test]
    fn a_diagonal_matrix_has_a_row_for_each_weight() {
        let tensors: [(&str, &[u64]); 1] = [("weights", &[30_000])];
        let bytes = 30_000 * 30_000 * 4;
        let found = cure(&tensors, bytes, "return features.T @ torch.diag(weights) @ features");
        assert_eq!(found, Some(ShapeCure::Diagonal("weights".into())));
        assert_eq!(cure(&tensors, bytes, "weights"), None);
    }
}
