//! The change of the program that the shapes at the failing line suggest: a tensor of all pairs that nobody needs.

use super::local_tensors::{LocalTensorReport, LocalTensors, request_bytes};
use crate::stacks::frames::FrameReport;

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
    /// Find the largest elements without sorting all.
    Largest(String),
    /// Broadcast a tensor instead of repeating it.
    Broadcast(String),
    /// Keep the elements of a square matrix that are not zero; its length.
    Sparse(String),
    /// Compute a call that needs no gradients on parts of a batch.
    Batch(LocalTensorReport, FrameReport),
    /// Compute a call that needs no gradients on tiles of an image.
    Tiles(LocalTensorReport, FrameReport),
    /// Give a call of `vmap` a chunk size.
    Chunks(FrameReport),
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
        .or_else(|| sorted(tensors, bytes, line?))
        .or_else(|| repeated(tensors, bytes, line?))
        .or_else(|| square(line?))
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

/// A sort, and a request for its values or its indices.
fn sorted(tensors: &[LocalTensorReport], bytes: u64, line: &str) -> Option<ShapeCure> {
    let is_sort = ["sort", "argsort"].iter().any(|name| occurrences(line, name) > 0);
    let is_result = |tensor: &LocalTensorReport| {
        [&*tensor.dtype, "int64"].iter().any(|dtype| request_bytes(&tensor.shape, dtype) == Some(bytes))
    };
    let is_it = |tensor: &&LocalTensorReport| occurrences(line, &tensor.name) > 0 && is_result(tensor);
    tensors.iter().find(is_it).filter(|_| is_sort).map(|tensor| ShapeCure::Largest(tensor.name.clone()))
}

/// Copies of a tensor, and a request for several times its size.
fn repeated(tensors: &[LocalTensorReport], bytes: u64, line: &str) -> Option<ShapeCure> {
    let is_repeat = ["repeat", "repeat_interleave", "tile"].iter().any(|name| occurrences(line, name) > 0);
    let is_source = |tensor: &&LocalTensorReport| {
        let size = request_bytes(&tensor.shape, &tensor.dtype).unwrap_or(u64::MAX);
        occurrences(line, &tensor.name) > 0 && size < bytes && bytes.is_multiple_of(size)
    };
    let found = tensors.iter().filter(is_source).max_by_key(|tensor| request_bytes(&tensor.shape, &tensor.dtype));
    found.filter(|_| is_repeat).map(|tensor| ShapeCure::Broadcast(tensor.name.clone()))
}

/// `zeros(nodes, nodes)`
fn square(line: &str) -> Option<ShapeCure> {
    let (_, arguments) = line.split_once("zeros(")?;
    let mut lengths = arguments.trim_start_matches(['(', '[']).split([',', ')', ']']).map(str::trim);
    let (rows, columns) = (lengths.next()?, lengths.next()?);
    let is_length = !rows.is_empty() && rows == columns && rows.parse::<u64>().is_err();
    is_length.then(|| ShapeCure::Sparse(rows.to_owned()))
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
/// variable has that shape. Or a tensor (N), and a variable and a request of (N, N).
fn pairs_of_rows(tensors: &[LocalTensorReport], bytes: u64, line: Option<&str>) -> Option<ShapeCure> {
    let times = |tensor: &LocalTensorReport| line.map_or(0, |line| occurrences(line, &tensor.name));
    let with_others = pairs(tensors).map(|pair| (pair, times(pair.0).min(times(pair.1)) > 0));
    let with_themselves = tensors.iter().map(|tensor| ((tensor, tensor), times(tensor) > 1));
    with_others.chain(with_themselves).find_map(|((left, right), at_line)| {
        if let ([rows], [same]) = (left.shape.as_slice(), right.shape.as_slice()) {
            let is_shape = |tensor: &LocalTensorReport| tensor.shape == [*rows, *rows];
            let is_it = rows == same && *rows >= MIN_ROWS && has_size(&[*rows, *rows], left, bytes);
            return (is_it && tensors.iter().any(is_shape)).then(|| ShapeCure::Parts([left.clone(), right.clone()]));
        }
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

    fn cure(tensors: &[(&str, &[u64])], bytes: u64, line: &str) -> Option<ShapeCure> {
        let tensor = |(name, shape): &(&str, &[u64])| LocalTensorReport {
            name: (*name).to_owned(),
            dtype: "float32".to_owned(),
            shape: shape.to_vec(),
        };
        let tensors = tensors.iter().map(tensor).collect();
        let function = FrameReport::new("loss.py".to_owned(), 3, "huber".to_owned());
        let locals = LocalTensors { function, tensors, request: None, calls: Vec::new(), has_grad: None };
        shape_cure(&locals, bytes, Some(line))
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
        // Which of four are query, key and value, nothing shows.
        let four = [tensors.as_slice(), &[("output", shape)]].concat();
        assert_eq!(cure(&four, 4 * 6 * 2048 * 2048 * 4, ""), None);
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
        for (rows, is_large) in [(MIN_ROWS - 1, false), (MIN_ROWS, true), (16_384, true)] {
            let (row, square, bytes) = ([rows], [rows, rows], rows * rows * 4);
            let scores: [(&str, &[u64]); 2] = [("scores", &row), ("difference", &square)];
            let parts = cure(&scores, bytes, "1 - difference");
            assert_eq!(matches!(parts, Some(ShapeCure::Parts(_))), is_large, "{rows}");
            assert_eq!(cure(&scores[..1], bytes, "1 - difference"), None);
        }
        let points: [(&str, &[u64]); 2] = [("a", &[20_480, 3]), ("b", &[10_240, 3])];
        let line = "d = (a[:, None] - b[None]).norm(dim=-1)";
        assert!(matches!(cure(&points, 20_480 * 10_240 * 3 * 4, line), Some(ShapeCure::Distances(_))));
    }

    #[test]
    fn a_sort_gives_values_and_indices() {
        let tensors: [(&str, &[u64]); 1] = [("scores", &[1024, 200_000])];
        let largest = Some(ShapeCure::Largest("scores".into()));
        assert_eq!(cure(&tensors, 1024 * 200_000 * 8, "order = scores.argsort(dim=1)"), largest);
        assert_eq!(cure(&tensors, 1024 * 200_000 * 4, "values, _ = torch.sort(scores)"), largest);
        assert_eq!(cure(&tensors, 1024 * 200_000 * 2, "values, _ = torch.sort(scores)"), None);
        assert_eq!(cure(&tensors, 1024 * 200_000 * 4, "values = scores.exp()"), None);
    }

    #[test]
    fn a_repeated_tensor_has_many_copies() {
        let tensors: [(&str, &[u64]); 2] = [("history", &[32, 1000, 64]), ("candidates", &[32, 500, 64])];
        let line = "context = history.repeat_interleave(c, dim=0)";
        let broadcast = Some(ShapeCure::Broadcast("history".into()));
        assert_eq!(cure(&tensors, 500 * 32 * 1000 * 64 * 4, line), broadcast);
        assert_eq!(cure(&tensors, 500 * 32 * 1000 * 64 * 4, "context = history.exp()"), None);
        assert_eq!(cure(&tensors, 32 * 1000 * 64 * 4, line), None);
    }

    #[test]
    fn a_square_of_zeros_may_be_sparse() {
        let sparse = |length: &str| Some(ShapeCure::Sparse(length.into()));
        assert_eq!(cure(&[], 1 << 30, "a = torch.zeros(nodes, nodes, device=d)"), sparse("nodes"));
        assert_eq!(cure(&[], 1 << 30, "a = torch.zeros((len(x), len(x)))"), None);
        assert_eq!(cure(&[], 1 << 30, "a = torch.zeros(batch, nodes)"), None);
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
