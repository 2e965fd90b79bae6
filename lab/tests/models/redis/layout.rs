//! Compares docs/protocols/redis-layout.md with the table of fields.

use leasehold::modelled::redis_layout::LAYOUTS;

const PAGE: &str = include_str!("../../../../docs/protocols/redis-layout.md");

#[test]
fn layout_page_has_the_table_of_fields() {
    for layout in LAYOUTS {
        // Two layouts are parts of the record, as the scripts read it.
        if ["stored", "liveness"].contains(&layout.name) {
            continue;
        }
        let mark = format!("<!-- layout: {} -->", layout.name);
        let (_, section) = PAGE.split_once(&mark).expect(layout.name);
        let rows = section.lines().skip_while(|line| !line.starts_with("| `"));
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| `")).collect();

        assert_eq!(rows.len(), layout.fields.len(), "{}", layout.name);
        for (row, field) in rows.iter().zip(layout.fields) {
            let bytes = match field.len {
                0 => String::new(),
                len => format!("{len} "),
            };
            let expected = format!("| `{}` | {} | {bytes}|", field.name, field.start);
            assert!(row.starts_with(&expected), "{row} is not {expected}");
        }
    }
}
