-- Pass through: every bid unchanged.
-- sources: bid
CREATE STREAM q0 AS
  SELECT auction, bidder, price, dateTime, extra FROM bid;

-- answer
SELECT auction, bidder, price, dateTime, extra FROM bid
