//! Text that the program attached to live allocations: `torch.cuda.memory._annotate_tensor`, since PyTorch 2.15.

use super::DeviceStudy;
use super::memory::{BlockSum, NamedShare, TopRows, sum_by_key, top_rows};
use crate::base::ids::SymbolId;
use crate::base::intern::SeededMap;
use crate::base::units::escape_name;
use crate::snapshot::Action;

/// Longer annotations are cut.
const MAX_TEXT: usize = 200;
/// The last annotations of an allocation that are kept.
const MAX_OF_ONE: usize = 8;

/// The size and the annotations of live allocations, by address.
pub(crate) type AnnotatedAllocations = SeededMap<u64, (u64, Vec<SymbolId>)>;

/// The annotations of what is live after the first `entries` entries.
pub(crate) fn annotated_allocations(device: DeviceStudy<'_, '_>, entries: usize) -> AnnotatedAllocations {
    let trace = device.device();
    let mut live = AnnotatedAllocations::default();
    for index in 0..entries.min(trace.len()) {
        match trace.action(index) {
            // A range of addresses is allocated again only after it was freed.
            Some(Action::FreeRequested) if !live.is_empty() => {
                live.remove(&trace.entry(index).addr);
            }
            Some(Action::Other) => {
                let entry = trace.entry(index);
                let text = entry.user_metadata.filter(|text| !device.snapshot().text(*text).is_empty());
                let Some(text) = text.filter(|_| entry.addr > 0) else { continue };
                let (size, texts) = live.entry(entry.addr).or_default();
                *size = entry.size;
                texts.retain(|known| *known != text);
                texts.push(text);
                if texts.len() > MAX_OF_ONE {
                    texts.remove(0);
                }
            }
            _ => {}
        }
    }
    live
}

/// The annotations of memory that is live at the snapshot, most bytes first. A block with several counts for each.
pub fn by_annotation(device: DeviceStudy<'_, '_>, top: usize) -> Option<TopRows<NamedShare>> {
    let live = annotated_allocations(device, device.device().len());
    let all = device.live_by_stack().values().fold(BlockSum::default(), |all, sum| all.plus(*sum));
    let sums = sum_by_key(live.values().flat_map(|(size, texts)| texts.iter().map(|text| (*text, *size))));
    let annotated = sums.values().fold(BlockSum::default(), |all, sum| all.plus(*sum));
    let table = top_rows(sums, annotated, top, |text, sum| {
        let text: String = device.snapshot().text(text).chars().take(MAX_TEXT).collect();
        sum.named(Some(escape_name(&text)), all)
    });
    (!table.rows.is_empty()).then_some(table)
}
