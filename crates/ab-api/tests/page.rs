//! Paging.

use ab_api::PageRequest;

#[test]
fn next_page_is_null_on_the_last_page() {
    let check = |page, per_page, total, next| {
        let request = PageRequest { page: Some(page), per_page: Some(per_page) };
        assert_eq!(
            request.build_response_page(vec![(); 0], total).next_page,
            next,
            "{request:?} of {total}"
        );
    };
    check(1, 20, 0, None);
    check(1, 20, 20, None);
    check(1, 20, 21, Some(2));
    check(2, 20, 40, None);
    check(u32::MAX, 200, u64::MAX, Some(u32::MAX));
}

#[test]
fn ranges_are_checked_together() {
    let request = PageRequest { page: Some(0), per_page: Some(201) };
    let errors = request.check().expect_err("both are out of range").messages_by_field();
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["page", "perPage"]);
    PageRequest::default().check().expect("the defaults are valid");
}
