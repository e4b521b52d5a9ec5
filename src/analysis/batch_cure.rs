//! The change of the program that computes in parts what needs no gradients: a batch, or the samples of `vmap`.

use super::local_tensors::{LocalTensorReport, LocalTensors};
use super::shape_cure::ShapeCure;

/// The change at the outermost call of the program that uses `vmap`, or that gets a batch, if PyTorch records no graph.
pub(super) fn batch_cure(locals: &LocalTensors) -> Option<ShapeCure> {
    if let Some(call) = locals.calls.iter().rfind(|call| call.vmap) {
        return Some(ShapeCure::Chunks(call.at.clone()));
    }
    if locals.has_grad != Some(false) {
        return None;
    }
    let calls = || locals.calls.iter().enumerate().rev();
    let batch = calls().find_map(|(place, call)| {
        let flows = |rows: u64| place == 0 || locals.tensors.iter().any(|tensor| rows_of(tensor).is_multiple_of(rows));
        let batch = call.tensors.iter().find(|tensor| rows_of(tensor) > 1 && flows(rows_of(tensor)))?;
        Some(ShapeCure::Batch(batch.clone(), call.at.clone()))
    });
    let image =
        || calls().find_map(|(_, call)| call.tensors.iter().find(|tensor| is_image(tensor)).map(|image| (image, call)));
    batch.or_else(|| image().map(|(image, call)| ShapeCure::Tiles(image.clone(), call.at.clone())))
}

/// Whether the shape is that of one large image.
fn is_image(tensor: &LocalTensorReport) -> bool {
    let channels = |count: u64| matches!(count, 3 | 4);
    match *tensor.shape.as_slice() {
        [1, count, height, width] | [count, height, width] => channels(count) && height.min(width) >= MIN_LENGTH,
        _ => false,
    }
}

/// Smaller images have no tiles.
const MIN_LENGTH: u64 = 256;

fn rows_of(tensor: &LocalTensorReport) -> u64 {
    tensor.shape.first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::local_tensors::CallTensors;
    use crate::stacks::frames::FrameReport;

    fn tensor(name: &str, shape: &[u64]) -> LocalTensorReport {
        LocalTensorReport { name: name.to_owned(), dtype: "float32".to_owned(), shape: shape.to_vec() }
    }

    fn call(line: u32, tensors: &[LocalTensorReport]) -> CallTensors {
        let at = FrameReport::new("/job/eval.py".to_owned(), line, "evaluate".to_owned());
        CallTensors { at, tensors: tensors.to_vec(), vmap: false }
    }

    fn batch(has_grad: Option<bool>, calls: Vec<CallTensors>, locals: &[LocalTensorReport]) -> Option<(String, u32)> {
        let function = calls[0].at.clone();
        let locals = LocalTensors { function, tensors: locals.to_vec(), request: None, calls, has_grad };
        match batch_cure(&locals)? {
            ShapeCure::Batch(tensor, at) => Some((tensor.name, at.line)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_outermost_call_with_the_batch_gets_parts() {
        let calls =
            || vec![call(3, &[tensor("x", &[64, 8])]), call(9, &[tensor("w", &[5]), tensor("images", &[64, 3])])];
        assert_eq!(batch(Some(false), calls(), &[tensor("x", &[64, 8])]), Some(("images".to_owned(), 9)));
        // Not the batch of the failing function.
        assert_eq!(batch(Some(false), calls(), &[tensor("x", &[63, 8])]), Some(("x".to_owned(), 3)));
        assert_eq!(batch(Some(true), calls(), &[tensor("x", &[64, 8])]), None);
        assert_eq!(batch(None, calls(), &[tensor("x", &[64, 8])]), None);
        assert_eq!(batch(Some(false), vec![call(3, &[tensor("x", &[1, 8])])], &[]), None);
    }

    #[test]
    fn a_large_image_gets_tiles() {
        let at = |shape: &[u64]| {
            let calls = vec![call(3, &[tensor("x", &[1, 64, 512, 512])]), call(9, &[tensor("photo", shape)])];
            let (function, tensors) = (calls[0].at.clone(), vec![tensor("x", &[1, 64, 512, 512])]);
            batch_cure(&LocalTensors { function, tensors, request: None, calls, has_grad: Some(false) })
        };
        for shape in [&[3, 512, 512][..], &[1, 3, 512, 512]] {
            assert!(matches!(at(shape), Some(ShapeCure::Tiles(photo, _)) if photo.name == "photo"));
        }
        assert_eq!(at(&[1, 512, 512]), None);
    }

    #[test]
    fn vmap_has_chunks() {
        let mut calls = vec![call(2, &[]), call(8, &[]), call(9, &[])];
        calls[1].vmap = true;
        let at = calls[1].at.clone();
        let locals =
            LocalTensors { function: at.clone(), tensors: Vec::new(), request: None, calls, has_grad: Some(true) };
        assert_eq!(batch_cure(&locals), Some(ShapeCure::Chunks(at)));
    }
}
