use super::*;

fn snapshot(text: &str) -> Snapshot {
    text.parse().unwrap()
}

#[test]
fn covers_is_sees_all_that_the_other_sees() {
    assert!(snapshot("5:10:5,7").covers(&snapshot("5:8:5,7")));
    assert!(!snapshot("5:10:5,7").covers(&snapshot("6:8:7")));
    assert!(snapshot("5:8:").covers(&snapshot("5:10:8,9")));
    assert!(!snapshot("5:8:").covers(&snapshot("5:10:9")));
    assert!(!snapshot("5:8:").covers(&snapshot("20:20:")));
}
