//! The colours of categories differ from each other and from the stripes of free memory, also for eyes that lack one kind
//! of cone, in light and dark. The deficiencies are those of Machado, Oliveira and Fernandes (2009), in full; the
//! differences are distances in Oklab.

use std::path::Path;

type Matrix = [[f64; 3]; 3];

/// The eyes of most people, then protanopia, deuteranopia, tritanopia: matrices for linear sRGB.
const EYES: [Matrix; 4] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
    [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
    [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
];
const LMS: Matrix = [
    [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
    [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
    [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
];
const OKLAB: Matrix = [
    [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
    [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
    [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
];
/// A difference that is easily seen; 0.02 is just noticeable.
const MIN_DIFFERENCE: f64 = 0.10;

fn apply(matrix: &Matrix, value: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(value).map(|(a, b)| a * b).sum())
}

fn seen_by(eyes: &Matrix, hex: &str) -> [f64; 3] {
    let linear = [1, 3, 5].map(|at| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    });
    let light = apply(eyes, linear).map(|value| value.clamp(0.0, 1.0));
    apply(&OKLAB, apply(&LMS, light).map(f64::cbrt))
}

/// The difference for those who see it least.
fn difference(one: &str, other: &str) -> f64 {
    let for_eyes = |eyes| {
        let [a, b] = [one, other].map(|hex| seen_by(eyes, hex));
        a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
    };
    EYES.iter().map(for_eyes).fold(f64::INFINITY, f64::min)
}

/// The colours behind `key` in a file of the page.
fn colours(file: &str, key: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/output/page/web").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.match_indices(key).map(|(at, _)| text[at + key.len()..][..7].to_owned()).collect()
}

/// The colours of a table of the script.
fn table(file: &str, name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/output/page/web").join(file);
    let script = std::fs::read_to_string(path).unwrap();
    let listed = script.split(&format!("{name} = {{")).nth(1).unwrap().split('}').next().unwrap();
    listed.split('"').filter(|part| part.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn phases_differ_from_each_other_and_from_categories() {
    let (phases, categories) = (table("overlay.js", "PHASE_COLOURS"), table("groups.js", "CATEGORY_COLOURS"));
    assert_eq!(phases.len(), 6);
    for (at, one) in phases.iter().enumerate() {
        for other in &phases[at + 1..] {
            assert!(difference(one, other) > MIN_DIFFERENCE, "{one} and {other}");
        }
        for category in &categories {
            assert!(difference(one, category) > 0.7 * MIN_DIFFERENCE, "{one} and {category}");
        }
    }
}

#[test]
fn categories_and_free_memory_differ_for_all_eyes() {
    let categories = table("groups.js", "CATEGORY_COLOURS");
    assert_eq!(categories.len(), 9);
    for (at, one) in categories.iter().enumerate() {
        for other in &categories[at + 1..] {
            let apart = difference(one, other);
            assert!(apart > MIN_DIFFERENCE, "{one} and {other} differ by {apart:.3}");
        }
    }
    let [stripes, backs] = ["--stripe: ", "--free: "].map(|key| colours("page.css", key));
    assert_eq!(stripes.len(), 3, "light, dark, and dark by choice");
    for (stripe, back) in stripes.iter().zip(&backs) {
        assert!(difference(stripe, back) > 3.0 * MIN_DIFFERENCE, "{stripe} on {back}");
        for category in &categories {
            assert!(difference(back, category) > MIN_DIFFERENCE, "{category} beside {back}");
        }
    }
}
