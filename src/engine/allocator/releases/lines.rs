//! Inferring the release from line numbers in PyTorch's own Python code, where no key of a snapshot identifies it.
//!
//! The line numbers come from the wheels of releases 2.0.0 to 2.15.0 on `PyPI`. Patch releases of one minor
//! release all have the same.

use super::RELEASES;

/// File and name of a PyTorch function that is in many stacks, and the lines of its calls in each minor release.
type Landmark = (&'static str, &'static str, [&'static [u32]; RELEASES.len()]);

/// Lines that call code which may allocate: a module's `forward` and hooks, an optimizer's step, the autograd
/// engine.
#[rustfmt::skip]
const LANDMARKS: [Landmark; 6] = [
    ("torch/nn/modules/module.py", "_call_impl", [
        &[1501, 1517, 1527, 1536, 1538, 1545, 1547, 1557],
        &[1527, 1547, 1557, 1566, 1568, 1579, 1581, 1591, 1616, 1628, 1630],
        &[1520, 1540, 1550, 1559, 1561, 1572, 1574, 1584, 1609, 1621, 1623],
        &[1541, 1561, 1571, 1580, 1582, 1593, 1595, 1605, 1630, 1642, 1644],
        &[1562, 1582, 1592, 1601, 1603, 1614, 1616, 1626, 1651, 1663, 1665],
        &[1747, 1841, 1844, 1852, 1864, 1866], &[1750, 1842, 1845, 1853, 1865, 1867],
        &[1762, 1854, 1857, 1865, 1877, 1879], &[1784, 1876, 1879, 1887, 1899, 1901],
        &[1786, 1878, 1881, 1889, 1901, 1903], &[1787, 1879, 1882, 1890, 1902, 1904],
        &[1790, 1882, 1885, 1893, 1905, 1907], &[1789, 1881, 1884, 1892, 1904, 1906],
        &[1789, 1881, 1884, 1892, 1904, 1906], &[1794, 1886, 1889, 1897, 1909, 1911],
        &[1798, 1890, 1893, 1901, 1913, 1915],
    ]),
    ("torch/nn/modules/module.py", "_wrapped_call_impl", [
        &[], &[1516, 1518], &[1509, 1511], &[1530, 1532], &[1551, 1553], &[1734, 1736], &[1737, 1739],
        &[1749, 1751], &[1771, 1773], &[1773, 1775], &[1774, 1776], &[1777, 1779], &[1776, 1778],
        &[1776, 1778], &[1781, 1783], &[1785, 1787],
    ]),
    ("torch/nn/modules/module.py", "_apply", [
        &[797, 820, 833, 844], &[810, 833, 846, 857], &[802, 825, 838, 849], &[779, 804, 835, 853],
        &[780, 805, 836, 854], &[900, 927, 964, 988], &[903, 930, 967, 991], &[915, 942, 979, 1003],
        &[928, 955, 996, 1020], &[930, 957, 998, 1022], &[933, 964, 1007, 1031], &[934, 965, 1009, 1035],
        &[933, 964, 1008, 1034], &[933, 964, 1008, 1034], &[933, 966, 1010, 1036], &[933, 966, 1010, 1036],
    ]),
    ("torch/optim/optimizer.py", "wrapper", [
        &[272, 280, 285], &[364, 373, 378], &[376, 385, 390], &[382, 391, 396], &[475, 484, 492],
        &[478, 487, 495], &[484, 493, 501], &[476, 485, 493], &[507, 516, 524], &[508, 517, 525],
        &[516, 526, 534], &[523, 533, 541], &[525, 535, 543], &[520, 530, 538], &[539, 549, 557],
        &[557, 567, 575],
    ]),
    ("torch/_tensor.py", "backward", [
        &[478, 487], &[483, 492], &[513, 522], &[516, 525], &[512, 521], &[572, 581], &[617, 626],
        &[639, 648], &[638, 647], &[616, 625], &[621, 630], &[622, 631], &[622, 631], &[614, 623],
        &[614, 623], &[614, 623],
    ]),
    ("torch/cuda/memory.py", "empty_cache", [
        &[133], &[159], &[162], &[162], &[170], &[192], &[218], &[222], &[224], &[224], &[280], &[224],
        &[227], &[228], &[229], &[230],
    ]),
];

/// The releases in which `line` of `file` is a call in `function`, as a bit set of minor numbers. `None` if the
/// function is no landmark, or no release has a call on that line.
pub fn releases_with_line(file: &str, function: &str, line: u32) -> Option<u32> {
    let mut landmarks = LANDMARKS.iter().filter(|(_, name, _)| *name == function);
    let (.., by_release) = landmarks.find(|(path, ..)| ends_with_path(file, path))?;
    let mut releases = 0;
    for (minor, lines) in by_release.iter().enumerate() {
        releases |= u32::from(lines.contains(&line)) << minor;
    }
    (releases != 0).then_some(releases)
}

/// Whether `path` ends in the path `name`, with `/` or `\` as separators.
fn ends_with_path(path: &str, name: &str) -> bool {
    let Some(above) = path.len().checked_sub(name.len()) else { return false }; // `path` is shorter
    let mut bytes = path.bytes().map(|byte| if byte == b'\\' { b'/' } else { byte });
    bytes.clone().skip(above).eq(name.bytes()) && (above == 0 || bytes.nth(above - 1) == Some(b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_identifies_releases_with_either_path_separator() {
        for (file, line, releases) in [
            ("/venv/site-packages/torch/nn/modules/module.py", 1750, Some(1 << 6)),
            (r"C:\env\Lib\site-packages\torch\nn\modules\module.py", 1568, Some(1 << 1)),
            ("torch/nn/modules/module.py", 1789, Some(1 << 12 | 1 << 13)),
            ("torch/nn/modules/module.py", 1751, None), // another statement
            ("/app/mytorch/nn/modules/module.py", 1750, None), // another file
        ] {
            assert_eq!(releases_with_line(file, "_call_impl", line), releases, "{file}:{line}");
        }
        assert_eq!(releases_with_line("torch/nn/modules/module.py", "forward", 1750), None);
    }
}
