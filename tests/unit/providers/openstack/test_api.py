"""Lists of OpenStack are read to the end, or not at all."""

from typing import Any

import msgspec
import pytest

from pileus.cloud.errors import CloudError, NotFound, Rejected, Unauthorized, Unavailable
from pileus.providers.openstack.api import Call, Client, Service


class Item(msgspec.Struct):
    id: str


class Pages:
    """Pages by marker: items, and the marker of the next page; or an error."""

    def __init__(self, pages: dict[str, tuple[str, str] | CloudError]) -> None:
        self.pages = pages
        self.queries: list[tuple[tuple[str, str], ...]] = []

    async def call(self, call: Call) -> Any:
        self.queries.append(call.query)
        page = self.pages[dict(call.query).get("marker", "")]
        if isinstance(page, CloudError):
            raise page
        items, following = page
        link = {"rel": "next", "href": f"http://openstack.example/items?limit=2&marker={following}"}
        return {
            "items": [{"id": one} for one in items],
            "items_links": [link] if following else [{"rel": "previous", "href": "?marker=x"}],
        }


async def read(pages: Pages) -> str:
    query = [("limit", "2")]
    found = await Client(pages).all_pages(Service.COMPUTE, "/items", "items", Item, query=query)
    return "".join(one.id for one in found)


async def test_pages_are_read_until_one_links_to_no_other_also_if_it_is_empty():
    pages = Pages({"": ("ab", "b"), "b": ("cd", "d"), "d": ("", "")})
    assert await read(pages) == "abcd"
    assert pages.queries == [
        (("limit", "2"),),
        (("limit", "2"), ("marker", "b")),
        (("limit", "2"), ("marker", "d")),
    ]


@pytest.mark.parametrize(
    "loop",
    [{"": ("ab", "b"), "b": ("cd", "b")}, {"": ("ab", "b"), "b": ("cd", "d"), "d": ("ef", "b")}],
)
async def test_pages_that_lead_back_are_an_error(loop: dict[str, tuple[str, str] | CloudError]):
    with pytest.raises(Unavailable, match="twice"):
        await read(Pages(loop))


class OtherLinks:
    """A service whose link to the next page has no marker."""

    def __init__(self, links: object) -> None:
        self.links = links

    async def call(self, call: Call) -> Any:
        return {"items": [{"id": "a"}], "items_links": self.links}


@pytest.mark.parametrize(
    "links",
    [
        [{"rel": "next", "href": "http://openstack.example/items?page=2"}],
        [{"rel": "next", "href": "http://openstack.example/items?marker="}],
        [{"rel": "next"}],
        ["http://openstack.example/items?marker=a"],
        {"next": "http://openstack.example/items?marker=a"},
    ],
)
async def test_a_first_page_is_not_the_whole_list_if_the_next_one_is_not_understood(links: object):
    with pytest.raises(Unavailable, match="unexpected answer"):
        await Client(OtherLinks(links)).all_pages(Service.COMPUTE, "/items", "items", Item)


@pytest.mark.parametrize("error", [Rejected("marker not found"), NotFound("no volume b")])
async def test_a_marker_that_was_deleted_meanwhile_is_neither_invalid_nor_absence(
    error: CloudError,
):
    with pytest.raises(Unavailable, match="changed while it was read"):
        await read(Pages({"": ("ab", "b"), "b": error}))
    with pytest.raises(type(error)):
        await read(Pages({"": error}))


class Shrinking(Pages):
    """The last item of the first page is deleted before the next page is asked for."""

    async def call(self, call: Call) -> Any:
        try:
            return await super().call(call)
        except Rejected:
            self.pages = {"": ("ac", "c"), "c": ("d", "")}
            raise


async def test_a_list_whose_marker_was_deleted_is_read_again():
    pages = Shrinking({"": ("ab", "b"), "b": Rejected("marker not found")})

    assert await read(pages) == "acd"
    assert len(pages.queries) == 4


async def test_other_errors_of_a_page_stay_what_they_are():
    with pytest.raises(Unauthorized):
        await read(Pages({"": ("ab", "b"), "b": Unauthorized("token expired")}))
