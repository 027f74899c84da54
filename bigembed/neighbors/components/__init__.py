"""Connected components: found, bridged, and the nearest rows of those that are embedded."""
