"""Paths and URLs: what they name, and what a URL may not hold. No store is asked."""

from __future__ import annotations

import asyncio
import os
import pickle

import pytest

from bigembed import store
from bigembed.errors import MANY, InputError, StoreAccessError, UnreachableError, nearest
from bigembed.runtime import outages
from bigembed.store import requests as credentials
from bigembed.store.objects import ObjectPath


@pytest.mark.parametrize("url", ["s3://bucket/a/b.tar.zarr", "gs://bucket/a/b.tar.zarr", "az://box/a/b.tar.zarr"])
def test_the_words_of_a_url(url):
    path = store.at(url)
    assert str(path) == url
    assert (path.name, path.stem, path.suffix) == ("b.tar.zarr", "b.tar", ".zarr")
    assert path.parent / "b.tar.zarr" == path == path.absolute() == store.at(path)
    assert str(path.parent.parent.parent) == url.partition("/a")[0]
    assert path.with_name("c").name == "c"
    assert str(path.with_suffix(".png")).endswith("a/b.tar.png")
    assert str(path / "x//y/" / "z") == f"{url}/x/y/z"
    assert pickle.loads(pickle.dumps(path)) == path
    assert store.at(f"{url}//").key == path.key
    assert store.at(f"{url}#1").name == "b.tar.zarr#1"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "not a kind of store"),
        ("https://host/x", "not a kind of store"),
        ("s3:///x", "names no bucket"),
        ("s3:/bucket/x", "one slash is missing; s3://bucket/x"),
        ("s3://KEY:hidden@bucket/x", "do not belong"),
        ("abfs://box:hidden@account.dfs.core.windows.net/x", "do not belong"),
        ("az://box/x?sig=hidden", "do not belong"),
    ],
)
def test_what_is_no_place(url, said):
    with pytest.raises(InputError, match=said) as caught:
        store.at(url)
    assert "hidden" not in str(caught.value)


def test_files(tmp_path):
    store.put(tmp_path / "a" / "x", b"one")
    store.create(tmp_path / "a" / "y", b"two")
    with pytest.raises(FileExistsError):
        store.create(tmp_path / "a" / "y", b"three")
    assert [(file.name, file.size) for file in store.stored(tmp_path)] == [("a/x", 3), ("a/y", 3)]
    assert [file.name for file in store.stored(tmp_path / "a" / "x")] == ["."]
    before = store.stored(tmp_path / "a" / "x")[0].stamp
    os.utime(tmp_path / "a" / "x", (0, 0))
    store.touch(tmp_path / "a" / "x")
    assert store.stored(tmp_path / "a" / "x")[0].stamp != before
    store.rewrite(tmp_path / "a" / "x", b"four")
    store.copy_files(tmp_path / "a", tmp_path / "b", ["x"])
    assert (tmp_path / "b" / "x").read_bytes() == b"four"
    assert not store.published(tmp_path / "c")
    store.move(tmp_path / "a", tmp_path / "c")
    assert (store.published(tmp_path / "a"), store.published(tmp_path / "c")) == (False, True)
    with pytest.raises(OSError):
        store.move(tmp_path / "b", tmp_path / "c")  # (not empty)
    for path in (tmp_path / "c", tmp_path / "b" / "x", tmp_path / "none"):
        store.remove(path)
        assert not path.exists()
    with pytest.raises(OSError):
        store.touch(tmp_path / "none")


# ---------------------------------------------------------------------------- credentials


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without credentials."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path / ".aws"


def test_a_profile(home, monkeypatch):
    assert credentials.profile("s3://bucket") == {}
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        "[other]\naws_access_key_id = C\naws_secret_access_key = D%\naws_session_token = E\n"
    )
    (home / "config").write_text("[profile other]\nregion = eu-west-1\n[profile role]\nrole_arn = arn\n")
    assert credentials.profile("s3://bucket") == {"aws_access_key_id": "A", "aws_secret_access_key": "B"}
    monkeypatch.setenv("AWS_PROFILE", "other")
    found = credentials.profile("s3://bucket")
    assert found == {
        "aws_access_key_id": "C", "aws_secret_access_key": "D%", "aws_session_token": "E", "aws_region": "eu-west-1",
    }  # fmt: skip
    assert credentials.credentials("gs://bucket") == {}
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert "aws_region" not in credentials.profile("s3://bucket")
    monkeypatch.setenv("AWS_PROFILE", "role")
    with pytest.raises(InputError, match="export-credentials --profile role"):
        credentials.profile("s3://bucket")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "F")  # what the environment says itself goes before
    assert credentials.credentials("s3://bucket") == {}


def test_without_any_credentials_nothing_is_waited_for(home, monkeypatch):
    monkeypatch.setattr(credentials, "_has_role", lambda: False)
    with pytest.raises(StoreAccessError, match=r"on workers too: AWS_ACCESS_KEY_ID .* AWS_SKIP_SIGNATURE"):
        credentials.credentials("s3://bucket")
    monkeypatch.setattr(credentials, "_has_role", lambda: True)
    assert credentials.credentials("s3://bucket") == {}
    monkeypatch.undo()
    monkeypatch.setattr(credentials, "METADATA", ("127.0.0.1", 9))
    assert not credentials._has_role()


def test_without_tls_only_on_this_machine_or_when_it_is_meant(home, monkeypatch):
    assert not credentials.unencrypted("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://host")
    assert not credentials.unencrypted("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert credentials.unencrypted("s3://bucket")
    assert not credentials.unencrypted("gs://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://host:9000")
    with pytest.raises(InputError, match="AWS_ALLOW_HTTP=true"):
        credentials.unencrypted("s3://bucket")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert credentials.unencrypted("s3://bucket")


def test_what_the_library_says_is_cut():
    class GenericError(Exception):
        pass

    said = "Error performing GET https://host/box/x?sig=hidden&se=1 in 1s: <?xml hidden\n\nDebug source: hidden"
    message = str(store.requests.translated(ObjectPath("az://box", "x"), GenericError(said)))
    assert "https://host/box/x" in message
    assert "hidden" not in message


class Told(Exception):
    """As the library says it."""

    __module__ = "obstore.exceptions"


def test_what_a_busy_store_did_not_delete_is_asked_for_again(monkeypatch):
    answers = [Told("DeleteObjects request failed for key x: Service Unavailable (code: ServiceUnavailable)"), None]
    asked = []

    class Library:
        @staticmethod
        def delete(client, keys):
            asked.append(keys)
            if (answer := answers[len(asked) - 1]) is not None:
                raise answer

    monkeypatch.setattr(outages, "SHORTEST", 0.0)
    monkeypatch.setattr(store.objects, "library", lambda: Library)
    monkeypatch.setattr(ObjectPath, "client", None)
    store.at("s3://bucket/x").unlink(missing_ok=True)
    assert asked == ["x", "x"]
    answers[:] = [Told("something else")]
    asked.clear()
    with pytest.raises(UnreachableError):
        store.at("s3://bucket/x").unlink(missing_ok=True)
    assert asked == ["x"]


def test_an_outage_ends_with_an_answer_where_a_request_was_cancelled_in_its_pause():
    heard: list[outages.Outage] = []

    async def away() -> None:
        raise OSError("away")

    async def cancelled() -> None:
        request = asyncio.create_task(outages.repeat_awaited("s3://cancelled", str, away))
        await asyncio.sleep(0.1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    with outages.stores.heard(heard.append):
        asyncio.run(cancelled())
        assert outages.repeat("s3://cancelled", str, lambda: 1) == 1
    assert [one.ended is None for one in heard] == [True, False]
    assert "s3://cancelled" not in outages.stores.away


def test_a_bucket_that_is_not_there_is_no_outage():
    said = "Error performing PUT http://host/none/x in 1ms - Server returned non-2xx status code: 404 Not Found"
    error = store.requests.translated(ObjectPath("s3://none", "x"), Told(said))
    assert isinstance(error, StoreAccessError)
    assert "no such bucket" in str(error)


def test_a_path_that_is_not_there_is_said_with_the_nearest_name_in_its_folder(tmp_path):
    (tmp_path / "pixels.npy").touch()
    assert store.no_such_path(tmp_path / "pixel.npy").endswith("pixel.npy: no such path (did you mean 'pixels.npy'?)")
    assert store.no_such_path(tmp_path / "other", "model").endswith("other: no such model")
    assert store.no_such_path(tmp_path / "none" / "pixel.npy").endswith("pixel.npy: no such path")
    assert store.no_such_path("s3://none/pixel.npy") == "s3://none/pixel.npy: no such path"


def test_among_too_many_names_none_is_looked_for():
    names = [f"gene{number}" for number in range(MANY + 1)]
    assert nearest("gene_7", names[:100]) is not None
    assert nearest("gene_7", names) is None


@pytest.mark.parametrize("url", ["gs://bucket/x", "az://box/x", "abfss://box@account.dfs.core.windows.net/x"])
def test_the_other_stores_are_made_by_the_same_library(home, monkeypatch, url):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    store.requests.client_of.cache_clear()
    try:
        client = store.at(url).client
    finally:
        store.requests.client_of.cache_clear()
    assert type(client).__name__ == {"g": "GCSStore", "a": "AzureStore"}[url[0]]
    assert client.prefix in (None, "")
