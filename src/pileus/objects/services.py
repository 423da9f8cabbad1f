"""Services as controllers and ported providers read them. Pure."""

from pileus.kube.model.core_v1 import Service

SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def source_range_texts(service: Service) -> tuple[str, tuple[str, ...]]:
    """Returns who may connect, as the user wrote it, after the place where it is written.

    That is the field of the spec, or the annotation if the field is empty. Empty: everyone may.
    """
    field = (service.spec and service.spec.load_balancer_source_ranges) or ()
    if field:
        return "spec.loadBalancerSourceRanges", tuple(text.strip() for text in field)
    text = ((service.metadata.annotations or {}).get(SOURCE_RANGES) or "").strip()
    parts = text.split(",") if text else ()
    return f"annotation {SOURCE_RANGES}", tuple(part.strip() for part in parts)
