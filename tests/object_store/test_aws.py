"""AWS S3 is trusted by the name of its host; other buckets of AWS are refused; all other hosts are tried."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory, UnsupportedOperationError
from agent_memory.object_store.options import is_aws_s3, require_general_purpose
from tests.support.servers import by_both_engines

S3 = [
    "s3.amazonaws.com",
    "S3.Amazonaws.com",
    "s3.us-east-1.amazonaws.com",
    "s3-us-west-2.amazonaws.com",
    "s3-external-1.amazonaws.com",
    "my.bucket.s3.eu-central-1.amazonaws.com",
    "s3.dualstack.eu-central-1.amazonaws.com",
    "s3-fips.us-gov-west-1.amazonaws.com",
    "s3-fips.dualstack.us-east-1.amazonaws.com",
    "s3-fips-us-gov-west-1.amazonaws.com",
    "s3-accelerate.amazonaws.com",
    "s3-accelerate.dualstack.amazonaws.com",
    "name-123456789012.s3-accesspoint.us-east-1.amazonaws.com",
    "name-123456789012.s3-accesspoint-fips.dualstack.us-east-1.amazonaws.com",
    "bucket.vpce-0a1b2c3d-abcd1234.s3.us-east-1.vpce.amazonaws.com",
    "accesspoint.vpce-0a1b2c3d-abcd1234.s3.us-east-1.vpce.amazonaws.com",
    "s3.cn-north-1.amazonaws.com.cn",
    "s3.dualstack.cn-northwest-1.amazonaws.com.cn",
    "s3.us-iso-east-1.c2s.ic.gov",
    "s3.us-isob-east-1.sc2s.sgov.gov",
    "s3.eusc-de-east-1.amazonaws.eu",
]
NOT_S3 = [
    "",
    "127.0.0.1",
    "amazonaws.com",
    "x-amazonaws.com",
    "s3.x-amazonaws.com",
    "s3amazonaws.com",
    "s3.amazonaws.com.evil.example",
    "s3.us-east-1.amazonaws.com.evil.example",
    "s3.amazonaws.com.de",
    "evil.example/.s3.amazonaws.com",
    "ec2-1-2-3-4.us-west-2.compute.amazonaws.com",
    "s3-1234567890.us-east-1.elb.amazonaws.com",
    "s3.us-east-1.elb.amazonaws.com",
    "abc.execute-api.us-east-1.amazonaws.com",
    "vpce-0a1b-cd.vpce-svc-0a1b2c3d.us-east-1.vpce.amazonaws.com",
    "s3.us-east-1.amazonaws.com:80",
    *(
        refused := [
            "s3-outposts.us-east-1.amazonaws.com",
            "name-123.op-01ac5d28a6a232904.s3-outposts.us-east-1.amazonaws.com",
            "s3express-use1-az4.us-east-1.amazonaws.com",
            "b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com",
            "s3express-control.us-east-1.amazonaws.com",
            "s3-object-lambda.us-east-1.amazonaws.com",
            "name.accesspoint.s3-global.amazonaws.com",
            "vpce-0a1b-cd.s3-outposts.us-east-1.vpce.amazonaws.com",
            "s3-outposts.cn-north-1.amazonaws.com.cn",
        ]
    ),
]
BUCKETS = {
    "memories--use1-az4--x-s3": "directory bucket",
    "point--use1-az4--xa-s3": "directory bucket",
    "name-abc123--op-s3": "Outposts",
    "name-abc123--ol-s3": "Object Lambda",
    "mfzwi23gnjvgw.mrap": "Multi-Region",
    "memories--table-s3": "table bucket",
}


@pytest.mark.parametrize("host", S3)
def test_an_endpoint_of_general_purpose_buckets_is_trusted(host: str) -> None:
    assert is_aws_s3(host)
    require_general_purpose("memories", host)


@pytest.mark.parametrize("host", NOT_S3)
def test_any_other_host_is_tried_also_one_that_looks_like_aws(host: str) -> None:
    assert not is_aws_s3(host)


@pytest.mark.parametrize("host", refused)
def test_an_endpoint_of_other_buckets_of_aws_is_refused_in_words(host: str) -> None:
    with pytest.raises(UnsupportedOperationError, match="use a general purpose bucket"):
        require_general_purpose("memories", host)


@pytest.mark.parametrize("host", sorted(set(NOT_S3) - set(refused)))
def test_a_host_that_is_not_of_aws_is_not_refused(host: str) -> None:
    require_general_purpose("memories", host)


@by_both_engines
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_bucket_of_another_kind_is_refused_when_it_is_opened(bucket: str, engine: str) -> None:
    options = {} if engine == "s3fs" else {"engine": engine}
    with pytest.raises(UnsupportedOperationError, match=f"{BUCKETS[bucket]}.*use a general purpose bucket"):
        AgentMemory.open(f"s3://{bucket}/memories", storage_options=options)


@pytest.mark.parametrize("bucket", ["memories", "x-s3", "my-s3alias", "x--x-s3x"])
def test_a_general_purpose_bucket_is_not_refused(bucket: str) -> None:
    require_general_purpose(bucket)


@by_both_engines
def test_an_endpoint_of_other_buckets_is_refused_before_the_first_request(engine: str) -> None:
    endpoint = "https://s3-outposts.us-east-1.amazonaws.com"
    options: dict[str, object] = {"endpoint_url": endpoint, "key": "k", "secret": "s"}
    if engine == "obstore":
        options = {"engine": engine, "endpoint": endpoint, "access_key_id": "k", "secret_access_key": "s"}
    with (
        pytest.raises(UnsupportedOperationError, match="Outposts"),
        AgentMemory.open("s3://memories/x", storage_options=options) as memory,
    ):
        memory.read("a.md")
