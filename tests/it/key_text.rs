//! Key text is the same in SQL as in Rust. Both are held to one golden file: SQL in `emit.rs`, Rust beside `key!`.

use pgevict::key;

use crate::support::World;

#[tokio::test]
async fn sql_and_rust_write_any_text_alike() {
    let world = World::start().await;
    let mut random = fastrand::Rng::with_seed(7);
    for length in 0..300 {
        let text: String = (0..length)
            .map(|_| match random.u8(0..4) {
                0 => random.alphanumeric(),
                1 => random.char('\u{1}'..='\u{ff}'),
                2 => *random
                    .choice(['%', '2', '5', 'N', '\\', '\'', '~', '\u{301}'].iter())
                    .unwrap(),
                _ => random.char('\u{1}'..=char::MAX),
            })
            .collect();
        let row = world
            .admin
            .query_one("select pgevict.key($1::text)", &[&text])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), key!("{}", text).as_str(), "{text:?}");
    }
}
