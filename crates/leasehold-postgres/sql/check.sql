SELECT leasehold.check($1::text, $2::bigint, $3::text::uuid, $4::bigint * interval '1 ms')
